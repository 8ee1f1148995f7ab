// The pipeline of a traced step as two pictures on one scale: as it ran, and as the simulator foretells it from
// what the ops of that step took. Where they differ, ranks waited for something that the program's dependencies
// don't name: cores that they share, a slow link, the host.
#pragma once

#include <string>
#include <vector>

#include "heddle/session/run_trace.h"

namespace heddle::session {

struct PipelinePictures {
  double measured_us = 0, predicted_us = 0;  // from the first op that computes to the last, microbatches only
  std::string measured_svg, predicted_svg;
};

/// Of the data, tensor and context ranks at the origin. Empty pictures without a pipeline or without all its spans.
PipelinePictures pipeline_pictures(const train::Trainer& trainer, const std::vector<RankSpans>& ranks);

}  // namespace heddle::session
