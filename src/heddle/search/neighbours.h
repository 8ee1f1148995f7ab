// Plans one step away from a plan, and why each is not chosen: slower and by which part of the step, too large and
// by which bytes, or impossible.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/timed_plan.h"

namespace heddle::search {

struct Neighbour {
  std::string change;  // "tp 1 → 2 (dp 128 → 64)"
  Job job;
  std::string reason;  // why it can't be; else it has a step
  Exact exact;
  bool fits = false;
  double ratio = 0;  // of its step time to the plan's; 0 where there is none
  std::string why;
};

/// Every degree to the next value that the devices, layers and experts allow, up and down; microbatch, recompute
/// and the switches. Those that fit and are faster come first, then the others by step time; impossible ones last.
/// Where the plan's stages differ in what they keep, its neighbours keep the same on all, as the plan's job says.
std::vector<Neighbour> neighbours_of(const TimedPlan& plan, double memory_bytes, PlanTimer& timer);

/// The step's parts with their names, in the order of the waterfall.
struct StepPart {
  std::string name;
  double seconds = 0;
};
std::vector<StepPart> parts_of(const Waterfall& time);

}  // namespace heddle::search
