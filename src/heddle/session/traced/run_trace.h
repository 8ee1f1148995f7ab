// One step seen op by op: the work of all ranks' streams, as a timeline.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/device/stream.h"
#include "heddle/observe/report.h"
#include "heddle/observe/timeline.h"
#include "heddle/simulate/simulate.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// True if a run that began or went on behind `first_step` traces this step: number train.trace_step of its own, or
/// the last one where it has fewer.
bool is_traced(const config::RunConfig::Train& train, int64_t first_step, int64_t step);

/// The ops of one rank in a step; times count from the step's start.
struct RankSpans {
  std::vector<std::string> streams;
  std::vector<std::vector<device::Span>> of_stream;
};

/// The spans that the executors recorded since their traces were switched on, by rank; all ranks call it together,
/// between steps. `began_ns`: when this rank's step began on its clock. A large job has those of the first ranks
/// only.
std::vector<RankSpans> take_spans(train::Trainer& trainer, int64_t began_ns);

/// The spans of a step that was only simulated.
std::vector<RankSpans> spans_of(const simulate::Simulation& simulation);

struct StepTrace {
  int64_t step = 0;
  observe::Timeline timeline;
};
StepTrace trace_of(const plan::Lowered& lowered, const std::vector<RankSpans>& ranks, int64_t step);

}  // namespace heddle::session
