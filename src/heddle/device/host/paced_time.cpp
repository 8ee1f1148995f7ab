#include "heddle/device/host/paced_time.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "heddle/base/clock.h"
#include "heddle/base/error.h"

namespace heddle::device {

namespace {

int64_t processor_ns() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) throw SystemError(errno, "the process' own processor time is not known");
  const auto ns = [](const timeval& t) { return (int64_t{t.tv_sec} * 1'000'000 + t.tv_usec) * 1000; };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

}  // namespace

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // a mask too large for the set
}

double PacedTime::processor_use() const {
  if (wall_ns <= 0) return 0;
  return static_cast<double>(processor_ns) / (static_cast<double>(wall_ns) * cores);
}

double PacedTime::seconds() const {
  if (!believable()) {
    config_error(
        "the paced run kept {:.0f} % of {} cores busy; above {:.0f} % its time says nothing: pace it at least "
        "{:.1f} "
        "times as slow, or run fewer ranks on a machine",
        100 * processor_use(), cores, 100 * kMostPacedUse, processor_use() / kMostPacedUse);
  }
  return static_cast<double>(wall_ns) * 1e-9;
}

PacedTimer::PacedTimer(int cores)
    : cores_(cores > 0 ? cores : allowed_cores()),
      wall_ns_(heddle::now_ns()),
      processor_ns_(heddle::device::processor_ns()) {}

PacedTime PacedTimer::elapsed() const {
  return {heddle::now_ns() - wall_ns_, heddle::device::processor_ns() - processor_ns_, cores_};
}

}  // namespace heddle::device
