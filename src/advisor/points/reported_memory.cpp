#include "advisor/points/reported_memory.h"

#include <algorithm>

namespace heddle::advisor {

double most_reported(const Job& job) { return job.device.memory_bytes; }

void count_as_reported(const PointJob& point, Estimate& e) {
  if (point.release.reports == "first step") {
    // Moments are made by the first update, behind the passes: 8 of a parameter's bytes of state.
    constexpr double kMoments = 8;
    Job passes = point.job;
    Software& s = passes.software;
    s.state_bytes = std::max(passes.residency.away_bytes, s.state_bytes - kMoments);
    double updated = e.static_bytes * s.reserve + s.context_bytes;
    if (point.job.residency.away_bytes > 0) {
      // States that live on the host are made on the device too, and then sent away.
      Job there = point.job;
      there.residency = {};
      updated += kMoments / there.software.state_bytes * (estimate(there).static_bytes - e.static_bytes);
    }
    const Estimate without = estimate(passes);
    e.static_bytes = without.peak_bytes < updated ? e.static_bytes : without.static_bytes;
    e.activation_bytes = without.peak_bytes < updated ? 0 : without.activation_bytes;
    e.peak_bytes = std::max(without.peak_bytes, updated);
  }
  e.peak_bytes = std::min(e.peak_bytes, most_reported(point.job));
}

}  // namespace heddle::advisor
