// One step seen op by op: what the streams of all ranks did, as a timeline.
#pragma once

#include <string>
#include <vector>

#include "heddle/device/stream.h"
#include "heddle/observe/report.h"
#include "heddle/observe/timeline.h"
#include "heddle/simulate/simulate.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// The ops of one rank in a step; times count from the step's start.
struct RankSpans {
  std::vector<std::string> streams;
  std::vector<std::vector<device::Span>> of_stream;
};

/// What the executors recorded since their traces were switched on, by rank; all ranks call it together, between
/// steps. `began_ns`: when this rank's step began on its clock. Of large jobs, the first ranks only.
std::vector<RankSpans> take_spans(train::Trainer& trainer, int64_t began_ns);

/// The same of a step that was only foretold.
std::vector<RankSpans> spans_of(const simulate::Simulation& simulation);

struct StepTrace {
  int64_t step = 0;
  observe::Timeline timeline;
};
StepTrace trace_of(const plan::Lowered& lowered, const std::vector<RankSpans>& ranks, int64_t step);

}  // namespace heddle::session
