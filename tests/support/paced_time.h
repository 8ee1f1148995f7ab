// The time that a paced run took, and whether that figure may be believed.
//
// Paced ops sleep until their profiled time is over, so that many ranks share few cores as if each had its own.
// That holds only as long as the cores are free whenever an op wakes: where the process keeps them busy for more
// than kMostPacedUse of the time, ops run later than their pace says and the figure is refused.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <cstdint>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"
#include "heddle/device/host/allowed_cores.h"

namespace heddle {

inline constexpr double kMostPacedUse = 0.7;

/// A stretch of time, and the processor time that this process (all its threads) used in it.
struct PacedTime {
  int64_t wall_ns = 0;
  int64_t processor_ns = 0;
  int cores = 1;  // that the process may use

  /// Share of all cores' time.
  double processor_use() const {
    return wall_ns <= 0 ? 0 : static_cast<double>(processor_ns) / (static_cast<double>(wall_ns) * cores);
  }
  bool believable() const { return processor_use() <= kMostPacedUse; }
  /// The figure. ConfigError saying how much slower to pace when it is not believable.
  double seconds() const {
    if (!believable()) {
      config_error(
          "the paced run kept {:.0f} % of {} cores busy; above {:.0f} % its time says nothing: pace it at least "
          "{:.1f} "
          "times as slow, or run fewer ranks on a machine",
          100 * processor_use(), cores, 100 * kMostPacedUse, processor_use() / kMostPacedUse);
    }
    return static_cast<double>(wall_ns) * 1e-9;
  }
};

/// Starts when it is made.
class PacedTimer {
 public:
  /// `cores`: what this process may use; 0: the processors it is allowed to run on. Ranks in several processes of a
  /// machine give their share.
  explicit PacedTimer(int cores = 0)
      : cores_(cores > 0 ? cores : device::allowed_cores()), wall_ns_(now_ns()), processor_ns_(processor_ns()) {}
  PacedTime elapsed() const { return {now_ns() - wall_ns_, processor_ns() - processor_ns_, cores_}; }

 private:
  static int64_t processor_ns() {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0)
      throw SystemError(errno, "the process' own processor time is not known");
    const auto ns = [](const timeval& t) { return (int64_t{t.tv_sec} * 1'000'000 + t.tv_usec) * 1000; };
    return ns(usage.ru_utime) + ns(usage.ru_stime);
  }

  int cores_;
  int64_t wall_ns_, processor_ns_;
};

}  // namespace heddle
