// Time: durations by a clock that only goes forward, dates by the one that people set.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace heddle {

/// The steady clock's time, whose zero means nothing.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds of all threads of the process, since it began.
inline double processor_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Seconds since 1970 (UTC), for what is shown or kept; may jump, so differences of it are no durations.
inline double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace heddle
