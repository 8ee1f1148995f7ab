#include "heddle/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "heddle/base/holder.h"

namespace heddle {

void on_threads(int threads, const std::function<void(int thread)>& work) {
  std::exception_ptr first;
  std::mutex mutex;
  const auto run = [&](int thread) {
    try {
      work(thread);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
  };
  {
    // Joined on every way out; libc++ before 20 has no std::jthread.
    struct Joined {
      std::vector<std::thread> threads;
      ~Joined() {
        for (std::thread& thread : threads) thread.join();
      }
    } others;
    others.threads.reserve(static_cast<size_t>(std::max(0, threads - 1)));
    for (int thread = 1; thread < threads; ++thread) others.threads.emplace_back(run, thread);
    if (threads > 0) run(0);
  }
  if (first) std::rethrow_exception(first);
}

void for_each_index(int64_t count, const std::function<void(int64_t index)>& work) {
  std::vector<std::exception_ptr> failures(static_cast<size_t>(count));
  std::atomic<int64_t> next = 0;
  on_threads(static_cast<int>(std::min<int64_t>(hardware_threads(), count)), [&](int) {
    for (int64_t index = next++; index < count; index = next++) {
      try {
        check_stop();
        work(index);
      } catch (...) {
        failures[index] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

int hardware_threads() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

}  // namespace heddle
