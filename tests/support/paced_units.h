// What messages that a transport moves take of a device's units while others compute there, in paced mode: a clock
// of the units, by which ops that compute are paced. It runs as the steady one, but slower by the share that is
// taken (the usual transport of GPUs moves bytes by kernels of its own, which hold multiprocessors).
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace heddle {

class PacedUnits {
 public:
  /// What messages leave at least, however many there are.
  static constexpr double kLeast = 0.1;

  /// A share is taken from `now_ns` on, or, if negative, given back.
  void take(double share, int64_t now_ns) {
    const std::lock_guard lock(mutex_);
    advance(now_ns);
    taken_ += share;
  }
  /// Nanoseconds that the units had for computing up to `now_ns`, from wherever the first call began.
  double at(int64_t now_ns) {
    const std::lock_guard lock(mutex_);
    advance(now_ns);
    return passed_ns_;
  }

 private:
  void advance(int64_t now_ns) {
    // Threads read the clock before they come here, and may come in another order.
    const int64_t since = std::max<int64_t>(0, now_ns - last_ns_);
    if (last_ns_ > 0) passed_ns_ += static_cast<double>(since) * std::clamp(1 - taken_, kLeast, 1.0);
    last_ns_ = std::max(last_ns_, now_ns);
  }

  std::mutex mutex_;
  int64_t last_ns_ = 0;
  double passed_ns_ = 0, taken_ = 0;
};

}  // namespace heddle
