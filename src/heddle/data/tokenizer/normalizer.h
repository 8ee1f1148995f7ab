// Steps of a tokenizer on text before it cuts it: Unicode forms, replacements, a prefix.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/data/tokenizer/chars_map.h"
#include "heddle/data/tokenizer/split_pattern.h"
#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

class Normalizer {
 public:
  /// ConfigError if a pattern is no regular expression or finds nothing at all.
  Normalizer(const std::vector<NormalizerStep>& steps, const std::string& place);

  /// Two texts that steps write in turn.
  using Held = std::string[2];
  /// A view of `text`, or of one of `held`.
  std::string_view apply(std::string_view text, SplitPattern::Scratch& scratch, Held& held) const;
  /// True if it mends what is no UTF-8 by itself.
  bool takes_any_bytes() const;

 private:
  struct Replace {
    SplitPattern pattern;
    std::string content;
  };
  std::vector<std::variant<UnicodeForm, Replace, PrependStep, CharsMap>> steps_;
};

}  // namespace heddle::data
