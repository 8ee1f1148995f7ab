// Whether other programs have the cores: a bound on time is only held where nobody else could have lengthened it.
#pragma once

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "heddle/device/host/allowed_cores.h"

namespace heddle::test {

/// "", or how little of the cores a thread on each got for a twentieth of a second, in words for GTEST_SKIP.
inline std::string machine_is_busy() {
  const auto seconds = [](clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  std::vector<double> shares(static_cast<size_t>(device::allowed_cores()));
  std::vector<std::thread> threads;
  for (double& share : shares) {
    threads.emplace_back([&share, &seconds] {
      const double wall = seconds(CLOCK_MONOTONIC), own = seconds(CLOCK_THREAD_CPUTIME_ID);
      double now = wall;
      while ((now = seconds(CLOCK_MONOTONIC)) < wall + 0.05) {
      }
      share = (seconds(CLOCK_THREAD_CPUTIME_ID) - own) / (now - wall);
    });
  }
  for (std::thread& thread : threads) thread.join();
  constexpr double kFree = 0.9;
  const double least = *std::min_element(shares.begin(), shares.end());
  return least >= kFree ? "" : fmt::format("other programs leave {:.0f} % of a core", 100 * least);
}

}  // namespace heddle::test
