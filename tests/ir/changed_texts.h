// Numbers, words and lines of a program's text, changed at random: it is refused, or read and then found right or
// wrong.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "heddle/base/random.h"
#include "heddle/ir/parse.h"
#include "heddle/ir/verify/verify.h"

namespace heddle::test {

inline void expect_refused_or_read(const std::string& text, uint64_t texts, const ir::FindOp& find_op) {
  uint64_t refused = 0;
  for (uint64_t number = 0; number < texts; ++number) {
    uint64_t drawn = 0;
    const auto draw = [&](size_t below) { return RandomKey(7).with(number).bits(drawn++) % below; };
    std::string changed = text;
    const auto span = [&](std::string_view ends) {  // of a word or a line, drawn
      const size_t at = draw(changed.size());
      const size_t begin = changed.find_last_of(ends, at) + 1,
                   end = std::min(changed.find_first_of(ends, begin), changed.size());
      return std::pair(begin, end - begin);
    };
    const std::string_view kWords = " ,{}\n", kNumbers = " ,{}[]:\n";
    const auto [begin, length] = span(draw(3) == 0 ? "\n" : draw(2) == 0 ? kWords : kNumbers);
    const auto [other, other_length] = span(kWords);
    static constexpr const char* kOthers[] = {"0", "-1", "1", "7", "9223372036854775807", "none", "", "·", "\""};
    const std::string with = draw(2) == 0 ? kOthers[draw(std::size(kOthers))] : changed.substr(other, other_length);
    changed.replace(begin, length, with);
    try {
      for (const ir::Listing& listing : ir::parse_listings(changed, find_op)) {
        try {
          ir::verify(listing);
        } catch (const InternalError&) {  // read, and wrong
          ++refused;
        }
      }
    } catch (const ConfigError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, texts / 4);
}

}  // namespace heddle::test
