// The pipeline of a traced step twice on one scale: as it ran, and as the simulator predicts it from what the ops
// of that step took. Where they differ, ranks waited for something that the program's dependencies don't name:
// cores that they share, a slow link, the host.
#pragma once

#include <vector>

#include "heddle/session/traced/run_trace.h"

namespace heddle::session {

/// The views from the first op that computes to the last, of microbatches only, for the data, tensor and context
/// ranks at the origin: as it ran, as predicted. None without a pipeline or without all its spans.
std::vector<observe::PipelineView> pipeline_views(const train::Trainer& trainer,
                                                  const std::vector<RankSpans>& ranks);

}  // namespace heddle::session
