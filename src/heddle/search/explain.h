// Why a plan takes as long as it does and as much memory: the step's waterfall, what binds it, how it answers to
// faster and slower parts, its memory, its neighbours, and how far the estimate can be trusted.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/launch/launch.h"
#include "heddle/search/neighbours.h"
#include "heddle/search/plan_memory.h"
#include "heddle/search/predict/calibration.h"

namespace heddle::search {

/// The step's time, over the plan's, when something has a fifth less or a fifth more.
struct Sensitivity {
  std::string what;
  double less = 1, more = 1;
  double weight() const { return (less - more) / 0.4; }  // part of the step that goes with it
};

struct Explanation {
  Launch launch;
  Estimate estimate;            // as the closed forms have it
  ScaleInterval scale;          // measured over estimated, of jobs such as this one
  std::vector<StepPart> parts;  // adding up to estimate.step_s
  std::vector<Sensitivity> sensitivities;
  std::string binding;      // "matrix products", "network between nodes", …
  std::string binding_why;  // a sentence
  double memory_bytes = 0;  // of a device
  bool fits = true;
  std::vector<MemoryPart> memory;
  std::vector<Remedy> remedies;
  std::vector<Neighbour> neighbours;

  double step_s() const { return estimate.step_s * scale.scale; }
  double tokens_per_s_per_device() const { return estimate.tokens_per_s_per_device / scale.scale; }
};

struct ExplainRequest {
  double memory_bytes = 0;                   // 0: the device's
  const Calibration* calibration = nullptr;  // null: the built-in one
  Behaviour behaviour;
};

/// ConfigError when the job has no estimate, with the reason.
Explanation explain(const Launch& launch, const ExplainRequest& request = {});

/// The job in one line: "tp 1 pp 16 vpp 2 …".
std::string layout_line(const Job& job);

}  // namespace heddle::search
