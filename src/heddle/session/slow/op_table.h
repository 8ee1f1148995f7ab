// The times of all ops on all ranks that have sent them, as JSON: FOLDER/op_times.json.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/step_range.h"
#include "heddle/session/slow/op_times.h"

namespace heddle::session {

/// The table {"steps": [first, last], "ranks": …, "ops": [{"op", "phase", "stream", "layer", "calls", "seconds",
/// "over_others"}]}, longest first. "seconds": by rank, null where it does not run. "over_others": the slowest over
/// the middle of ranks that do the same.
std::string op_times_json(const ir::StepProgram& program, const std::vector<OpTimes>& of_rank,
                          const config::StepRange& steps);

}  // namespace heddle::session
