// Cuts text into the pieces within which tokens are joined: splits by regular expressions, marks for spaces.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/data/tokenizer/split_pattern.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

class Pieces {
 public:
  using Use = std::function<void(std::string_view piece)>;

  /// ConfigError if a pattern is no regular expression.
  Pieces(const std::vector<PieceStep>& steps, const std::string& place);
  /// Gives each piece of `text` to `use`, in order; none is empty. `at_start`: the text is the beginning of all.
  void cut(std::string_view text, bool at_start, SplitPattern::Scratch& scratch, const Use& use) const {
    cut(0, text, at_start, scratch, use);
  }
  /// True if a piece may begin or end within a character, since steps see its bytes.
  bool cuts_characters() const { return spells_; }

 private:
  struct Split {
    SplitPattern pattern;
    SplitStep::Behavior behavior;
    bool invert;
  };
  void cut(size_t level, std::string_view text, bool at_start, SplitPattern::Scratch& scratch,
           const Use& use) const;
  void split(const Split& how, size_t level, std::string_view text, bool at_start, SplitPattern::Scratch& scratch,
             const Use& use) const;
  void mark(const MetaspaceStep& how, size_t level, std::string_view text, bool at_start,
            SplitPattern::Scratch& scratch, const Use& use) const;

  std::vector<std::variant<Split, MetaspaceStep, PrefixSpaceStep, AlphabetStep>> steps_;
  bool spells_ = false;  // pieces come in the alphabet of bytes
};

}  // namespace heddle::data
