// Steps as a user names them: "7" or "3-9".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::config {

struct StepRange {
  int64_t first = 0, last = -1;  // both are of it; none by default
  bool holds(int64_t step) const { return step >= first && step <= last; }
  bool operator==(const StepRange&) const = default;
};
std::string text_of(const StepRange& range);

/// ConfigError without a place. "": none.
StepRange parse_step_range(std::string_view text);

}  // namespace heddle::config
