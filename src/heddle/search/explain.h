// Explains a plan's time and memory: the step's waterfall, what binds it, and its sensitivity to faster and slower
// parts. It also has the memory, the neighbours, and how far the estimate can be trusted.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/search/launch.h"
#include "heddle/search/neighbours.h"
#include "heddle/search/plan_memory.h"

namespace heddle::search {

/// The plan's step time, over what it is, when something has a fifth less or a fifth more.
struct Sensitivity {
  std::string what;
  double less = 1, more = 1;
  /// Part of the step that scales with it: 1 where a step takes as much longer as that is slower.
  double weight() const { return (less - more) / (1 / 0.8 - 1 / 1.2); }
};

/// Ratio of measured steps to estimated ones: the likeliest factor and the range that nine of ten fall into.
struct ScaleInterval {
  double scale = 1, low = 1, high = 1;
  std::string from;  // which measurements it leans on
};

struct Explanation {
  Launch launch;
  TimedPlan plan;
  ScaleInterval scale;          // measured over estimated, of jobs such as this one
  std::vector<StepPart> parts;  // adding up to the plan's step
  std::vector<Sensitivity> sensitivities;
  std::string binding;      // "matrix products", "network between nodes", …
  std::string binding_why;  // a sentence
  double memory_bytes = 0;  // usable by a plan on a device
  bool fits = true;
  std::vector<MemoryPart> memory;
  std::vector<Remedy> remedies;
  std::vector<Neighbour> neighbours;

  double step_s() const { return plan.exact.step_s * scale.scale; }
  double peak_bytes() const { return plan.exact.peak_bytes; }
};

struct ExplainRequest {
  double memory_bytes = 0;  // 0: the device's
  /// The time of a launch, measured over estimated. Null: nothing was measured.
  std::function<ScaleInterval(const Launch& launch)> scale;
  Behaviour behaviour;
  std::optional<cost::Routing> routing;  // of a job whose imbalance follows from its expert degree
};

/// Explains a launch. ConfigError when the job has no estimate, with the reason.
Explanation explain(const Launch& launch, const ExplainRequest& request = {});

/// The job in one line: "tp 1 pp 16 vpp 2 …".
std::string layout_line(const Job& job);

}  // namespace heddle::search
