// A plan's pipeline drawn from its times: the schedule of a step with each stage's F, I and W, and the activations
// of the fullest rank over the step.
#pragma once

#include <string>
#include <vector>

#include "heddle/schedule/timing.h"
#include "heddle/search/launch/launch.h"

namespace heddle::observe {

struct PlanPicture {
  schedule::Schedule schedule;
  schedule::Timing timing;
  int rank = 0;  // whose activations are highest
  // Of that rank: bytes from each moment on. Times in microseconds.
  std::vector<double> at_us, activation_bytes;
  double fixed_bytes = 0;
  int microbatches = 0, of_microbatches = 0;  // shown, and of a step
};

/// ConfigError where the launch's schedule can't be made. Of long steps the first microbatches only.
PlanPicture picture_of(const search::Launch& launch);

/// The schedule as the SVG that `heddle schedule --svg` writes.
std::string svg_of(const PlanPicture& picture);

}  // namespace heddle::observe
