// Kernels that last as long as they would elsewhere, asleep, so that many ranks share few cores as if each had its
// own. An op's time is put around its kernel before its launch goes to a stream of the CPU, which knows nothing of
// it.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/device/stream.h"
#include "tests/support/paced_units.h"

namespace heddle {

/// The part of an op's time that its own work is. A message leaves at the end of its send, so a send sleeps before
/// it runs; a collective begins when all ranks are there, so it sleeps once it has run; any other op's work is part
/// of its time.
enum class Pace : uint8_t { around, before, after };

/// An op's time. Stays in place until the stream has run the op.
class PacedKernel {
 public:
  int64_t pace_ns = 0;  // the op lasts at least this long
  Pace pace = Pace::around;
  double takes = 0;                   // share of the units that compute, taken while it sleeps
  bool computes = false;              // whether what others take slows it
  std::shared_ptr<PacedUnits> units;  // of a device; null: ops take nothing from each other

  /// Puts this time around the launch's kernel. Streams of the CPU alone, on which KernelCall::stream has no
  /// meaning.
  void put_around(device::Launch& launch) {
    if (run_ != launch.run) run_ = launch.run;
    launch.run = [](const device::KernelCall& call) { static_cast<PacedKernel*>(call.stream)->run(call); };
    launch.call.stream = this;
  }

 private:
  // Owned by the stream's thread. The next op sleeps less by the time that an op overslept, if it follows without
  // a wait.
  struct Asleep {
    int64_t overslept_ns = 0, ended_ns = 0;
  };
  static constexpr int64_t kNoWait_ns = 20'000;

  void run(device::KernelCall call) {
    thread_local Asleep asleep;
    call.stream = nullptr;
    const int64_t start = now_ns();
    if (start - asleep.ended_ns > kNoWait_ns) asleep.overslept_ns = 0;
    const bool by_units = units && computes && pace_ns > 0;
    const double start_units_ns = by_units ? units->at(start) : 0;
    if (pace == Pace::before && pace_ns > 0) sleep_taking(pace_ns);
    run_(call);
    const int64_t end = now_ns();
    const int64_t left_ns = pace_ns - (pace == Pace::after ? 0 : end - start);
    const double until_ns = start_units_ns + static_cast<double>(pace_ns - asleep.overslept_ns);
    asleep.ended_ns = end;
    if (by_units && units->at(end) < until_ns) {
      const int64_t due_ns = sleep_computing(until_ns);
      asleep = {now_ns() - due_ns, now_ns()};
    } else if (!by_units && left_ns > 0) {
      const int64_t due_ns = end + left_ns - asleep.overslept_ns;
      if (due_ns > end) sleep_taking(due_ns - end);
      asleep = {now_ns() - due_ns, now_ns()};
    }
  }

  void sleep_taking(int64_t ns) const {
    const bool taken = units && takes > 0;
    if (taken) units->take(takes, now_ns());
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
    if (taken) units->take(-takes, now_ns());
  }

  // Asleep until the units' clock shows `until`. Returns when that was.
  int64_t sleep_computing(double until_ns) const {
    constexpr double kNear_ns = 1e3;
    for (;;) {
      const int64_t now = now_ns();
      const double left_ns = until_ns - units->at(now);
      if (left_ns <= kNear_ns) return now + static_cast<int64_t>(left_ns);
      std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<int64_t>(left_ns)));
    }
  }

  device::Kernel run_ = nullptr;
};

}  // namespace heddle
