#include "heddle/config/step_range.h"

#include <charconv>

#include "heddle/base/error.h"

namespace heddle::config {

std::string text_of(const StepRange& range) {
  if (range.last < range.first) return "";
  return range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
}

StepRange parse_step_range(std::string_view text) {
  StepRange range;
  if (text.empty()) return range;
  const char *at = text.data(), *end = at + text.size();
  std::from_chars_result read = std::from_chars(at, end, range.first);
  range.last = range.first;
  if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
    read = std::from_chars(read.ptr + 1, end, range.last);
  if (read.ec != std::errc() || read.ptr != end || range.first < 1 || range.last < range.first)
    config_error("'{}': expected a step, or two as in 3-9", text);
  return range;
}

}  // namespace heddle::config
