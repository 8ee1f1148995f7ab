// What a slow rank costs the job: a step simulated with the ops' times as they were taken, and once more with those
// of the slow rank as of the ranks that do the same.
#pragma once

#include <optional>
#include <vector>

#include "heddle/session/slow/op_times.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

/// The step without it over the step with it. `of_rank`: of each rank, empty where they were not taken; they must
/// be there of the slow one, of another that does the same, and of one rank of every other kind, else there is
/// none.
std::optional<double> step_without(const train::Trainer& trainer, const std::vector<OpTimes>& of_rank, int slow);

}  // namespace heddle::session
