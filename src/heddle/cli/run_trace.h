// One step seen op by op: what the streams did, as a timeline and as the arena's curve.
#pragma once

#include <vector>

#include "heddle/observe/report.h"
#include "heddle/observe/timeline.h"
#include "heddle/train/trainer.h"

namespace heddle::cli {

struct StepTrace {
  int64_t step = 0;
  Timeline timeline;
  MemoryCurve memory;    // of the first rank
  int64_t start_ns = 0;  // of the timeline's zero, on the process' clock
};

SpanPhase span_phase_of(ir::Phase phase);

/// What the executor of this rank recorded since its trace was switched on. Only between steps.
StepTrace take_trace(train::Trainer& trainer, int64_t step);

/// The traces of ranks of one process, in rank order, as one.
StepTrace joined(const std::vector<StepTrace>& ranks);

}  // namespace heddle::cli
