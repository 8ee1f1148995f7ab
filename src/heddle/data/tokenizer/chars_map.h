// SentencePiece's normalizer (normalizer.cc): longest matches of a map are replaced, spaces marked or dropped, and
// each byte that is no UTF-8 becomes U+FFFD.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "heddle/data/tokenizer/tokenizer_spec.h"

namespace heddle::data {

class CharsMap {
 public:
  explicit CharsMap(const CharsMapStep& step);
  void apply(std::string_view text, std::string& out) const;

 private:
  std::string_view replacement_of_first(std::string_view text, size_t& taken) const;

  CharsMapStep step_;
  size_t longest_kept_ = 0;
  std::array<bool, 256> begins_kept_{};
};

}  // namespace heddle::data
