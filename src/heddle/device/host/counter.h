// A counter that only grows, on which threads wait: a spin, then asleep. Raising it costs one atomic addition until
// it reaches what a sleeper waits for.
//
// A thread spins about as long as spins have lately taken to succeed. Where threads share a core, what they wait
// for needs that core, so spins fail: then they are short, but for one in kProbe that looks whether this still
// holds.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace heddle::device {

class Counter {
 public:
  uint64_t value() const { return value_.load(std::memory_order_acquire); }

  void raise() {
    // Sequentially consistent, as is what a sleeper does: one of both sides sees the other.
    if (value_.fetch_add(1) + 1 < awaited_.load()) return;
    {
      const std::lock_guard lock(mutex_);
      awaited_.store(kNobody);  // whoever goes on sleeping says anew what for
    }
    changed_.notify_all();
  }

  void wait_for(uint64_t target) const {
    if (value() >= target) return;
    // Other waiters may write these at the same time: any of their numbers will do.
    const int usual = spins_.load(std::memory_order_relaxed);
    const unsigned turn = turn_.load(std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_relaxed);
    const int spins = turn % kProbe == 0 ? kMostSpins : usual;
    for (int i = 0; i < spins; ++i) {
      pause();
      if (value() < target) continue;
      spins_.store(std::min(2 * i + kLeastSpins, kMostSpins), std::memory_order_relaxed);
      return;
    }
    spins_.store(std::max(usual / 2, kLeastSpins), std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      if (target < awaited_.load()) awaited_.store(target);
      return value_.load() >= target;
    });
  }

 private:
  /// Lets the other thread of the core run.
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");  // `yield` does nothing on most; this waits about as long as x86's pause
#endif
  }

  static constexpr int kLeastSpins = 20, kMostSpins = 2000, kProbe = 32;
  std::atomic<uint64_t> value_{0};
  static constexpr uint64_t kNobody = UINT64_MAX;
  mutable std::atomic<uint64_t> awaited_{kNobody};  // the least that a sleeper waits for; written under the mutex
  mutable std::atomic<int> spins_{kMostSpins};
  mutable std::atomic<unsigned> turn_{1};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
};

}  // namespace heddle::device
