// The pages on which ranks tell what they wait for (comm/calls), in the folder of a run that trains.
#pragma once

#include "heddle/session/run/context.h"

namespace heddle::session {

/// Publishes this rank's page and, on rank 0, the program about the ops that the pages name by number. If the
/// folder refuses, a warning says so and training goes on. All ranks call it together.
void publish_calls(RunContext& run);
/// Retires the page of this rank, which has done its last step.
void retire_calls(RunContext& run);
/// Reports on rank 0, after a failed step, where this rank stood and for whom ranks wait.
void tell_where_it_stood(RunContext& run, int64_t step);

}  // namespace heddle::session
