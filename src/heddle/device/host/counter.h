// A counter that only grows, on which threads wait: a short spin, then asleep. Raising it costs one atomic addition
// when nobody sleeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace heddle::device {

class Counter {
 public:
  uint64_t value() const { return value_.load(std::memory_order_acquire); }

  void raise() {
    value_.fetch_add(1);  // sequentially consistent, as is the load of sleepers_: one of both sides sees the other
    if (sleepers_.load() == 0) return;
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  void wait_for(uint64_t target) const {
    for (int i = 0; i < kSpins; ++i) {
      if (value() >= target) return;
      __builtin_ia32_pause();
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    changed_.wait(lock, [&] { return value_.load() >= target; });
    sleepers_.fetch_sub(1);
  }

 private:
  static constexpr int kSpins = 2000;
  std::atomic<uint64_t> value_{0};
  mutable std::atomic<int> sleepers_{0};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

}  // namespace heddle::device
