// Whole numbers that go into others, for messages that say what would do.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace heddle::plan {

/// "1, 2, 4": the divisors of a number above 0, those up to `most`.
inline std::string divisors_text(int64_t number, int64_t most = int64_t{1} << 14) {
  std::string text;
  for (int64_t d = 1; d <= std::min(number, most); ++d) {
    if (number % d == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", d);
  }
  return text;
}

/// The largest divisor of a number above 0 that is at most `most`, which is 1 or more.
inline int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(number, most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

/// The least multiple of `unit`, 1 or more, that is not below `number`.
inline int64_t next_multiple(int64_t number, int64_t unit) { return (number + unit - 1) / unit * unit; }

}  // namespace heddle::plan
