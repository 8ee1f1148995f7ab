// Plans one step away from a plan, and why each is not chosen: slower and by which part of the step, too large and
// by which bytes, or impossible.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/cost/routing.h"
#include "heddle/search/timed_plan.h"

namespace heddle::search {

struct Neighbour {
  std::string change;  // "tp 1 → 2 (dp 128 → 64)"
  Launch launch;
  std::string reason;  // why it can't be; else it has a step
  Exact exact;
  bool fits = false;
  double ratio = 0;     // its step time over the plan's; 0 where there is none
  bool better = false;  // it fits and takes less time, by what a table shows
  std::string why;
};

/// Returns the neighbours: every degree at the next value that the devices, layers and experts allow, up and down;
/// microbatch, recompute and the switches. Those that fit and are faster come first, then the others by step time;
/// impossible ones last. Only what must change does: the data degree takes the devices that are left, and is named.
/// A neighbour of as many stages has the plan's own layers on each, and keeps on each what the plan keeps. With
/// other stages or another recomputation, all stages keep alike, as the plan's job says. With `routing` another
/// expert degree has the imbalance that it has in a search; else it keeps the plan's.
std::vector<Neighbour> neighbours_of(const TimedPlan& plan, double memory_bytes, PlanTimer& timer,
                                     const std::optional<cost::Routing>& routing = {});

/// The step's parts with their names, in the order of the waterfall.
struct StepPart {
  std::string name;
  double seconds = 0;
};
std::vector<StepPart> parts_of(const Waterfall& time);

}  // namespace heddle::search
