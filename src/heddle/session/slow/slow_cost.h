// The cost of a slow rank to the job. A step is simulated with the ops' times as they were taken, and once more
// with the slow rank's replaced by those of ranks that do the same.
#pragma once

#include <optional>
#include <vector>

#include "heddle/session/slow/op_times.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// The step without it over the step with it. `of_rank`: each rank's times, empty where they were not taken. They
/// must be there for the slow one, another that does the same, and one rank of every other kind; else there is no
/// result.
std::optional<double> step_without(const train::Trainer& trainer, const std::vector<OpTimes>& of_rank, int slow);

}  // namespace heddle::session
