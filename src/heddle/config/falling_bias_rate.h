// The rate of balancing biases that falls (model.bias_balance "falling"). At first it is high enough that they
// arrive within the run's warm-up, in whatever number of steps that is. Then it falls like 1 ÷ t, so that they
// follow without jumping about. Until the warm-up ends each step takes an equal part of kTravel, twice the distance
// by which scores lie apart in early training. A rate that falls like 1 ÷ t has no end to what it can travel from
// there.
#pragma once

#include <algorithm>

#include "heddle/config/bias_rate.h"

namespace heddle::config {

struct FallingBiasRate {
  static constexpr double kTravel = 0.6, kMost = 0.1;
  static constexpr double kUsualWarmup = 0.08;  // of the run, where it has none

  double warmup = 0;  // in the measure of the run's length

  double at(const RunLength& length, const RunProgress& done, double left = 1) const {
    const double whole = length.by_clock() ? length.seconds : static_cast<double>(length.steps);
    const double share = warmup > 0 ? std::min(1.0, warmup / whole) : kUsualWarmup;
    const double until = std::max(1.0, share * length.expected_steps(done));
    const double rate = kTravel / std::max(until, static_cast<double>(done.steps + 1));
    return left * std::clamp(rate, BiasRate::kLeast, kMost);
  }
};

}  // namespace heddle::config
