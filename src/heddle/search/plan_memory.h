// Parts of the bytes of a plan's fullest rank, and remedies that free some of them at a price.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/timed_plan.h"

namespace heddle::search {

struct MemoryPart {
  std::string name;
  double bytes = 0;
};

/// Weights, gradients, optimizer states, activations kept by the kinds of blocks, the rest (what a block works
/// with, the head); they add up to the plan's peak. Largest first.
std::vector<MemoryPart> memory_parts(const TimedPlan& plan, const Behaviour& behaviour = {});

/// Another choice of what to keep: bytes that it frees at the peak and seconds that it adds to the step.
struct Remedy {
  std::string what;
  Job job;
  double frees_bytes = 0, costs_s = 0;
  double peak_bytes = 0;
};

/// Remedies: recomputation by parts and whole, offload, a smaller microbatch, sharded states. Those that free
/// anything of a job with such a step are listed, the cheapest first among those that come below `limit_bytes`,
/// then the others by seconds a byte.
std::vector<Remedy> remedies_of(const Launch& launch, const Exact& step, double limit_bytes, PlanTimer& timer);

}  // namespace heddle::search
