// The cost of each home of the optimizer's state (memory.optimizer): bytes on the device, bytes on the host, and
// how long a step goes on behind its backward. It is read off the step program that the plan lowers to with that
// home, so this file knows no home by itself.
#pragma once

#include <vector>

#include "heddle/plan/plan.h"

namespace heddle::plan {

/// Bytes of a parameter's fp32 master and AdamW's moments.
constexpr double state_bytes_per_parameter(const passes::Optimizer& optimizer) {
  switch (optimizer.moments) {
    case passes::Moments::fp32: break;
    case passes::Moments::bf16: return 4 + 2 + 2;
    case passes::Moments::fp8: return 4 + 1 + 2;
  }
  return 12;
}

/// The moments of a launch of another trainer that keeps so many bytes of state a parameter: the fewest bits that
/// this one has where that one has fewer.
constexpr passes::Moments moments_of(double state_bytes) {
  return state_bytes <= 7 ? passes::Moments::fp8 : state_bytes <= 8 ? passes::Moments::bf16 : passes::Moments::fp32;
}

struct StateCost {
  StateResidency residency = StateResidency::device;
  int64_t device_bytes = 0;  // masters and moments, and the slots that they pass through
  int64_t host_bytes = 0;    // likewise, and what of gradients waits there
  double end_s = 0;          // from the end of the last microbatch's backward to that of the step
};

/// The cost in one rank's listing. The backward of one microbatch and the end of the step run on their streams as
/// durations say: what copies hide under is not counted.
StateCost state_cost(const ir::Listing& listing, StateResidency residency, const passes::Durations& duration_us);

/// The costs of a plan with each home in turn, whichever it has: every figure is that of the pipeline rank where it
/// is largest.
std::vector<StateCost> state_costs(const model::ModelConfig& config, const Plan& plan);

}  // namespace heddle::plan
