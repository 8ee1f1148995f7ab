// One step seen op by op: what the streams did, as a timeline and as the arena's curve.
#pragma once

#include "heddle/observe/report.h"
#include "heddle/observe/timeline.h"
#include "heddle/train/trainer.h"

namespace heddle::cli {

struct StepTrace {
  int64_t step = 0;
  Timeline timeline;
  MemoryCurve memory;
};

/// What the executor recorded since its trace was switched on. Only between steps.
StepTrace take_trace(train::Trainer& trainer, int64_t step);

}  // namespace heddle::cli
