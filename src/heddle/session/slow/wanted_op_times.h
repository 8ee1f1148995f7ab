// A run is asked for the times of its ops by a file in its folder, which says of how many steps.
#pragma once

#include <cstdint>

#include "heddle/session/run_folder.h"

namespace heddle::session {

inline constexpr int64_t kMostTimedSteps = 1000;

/// Asks the run that trains there. SystemError.
void want_op_times(const RunFolder& folder, int64_t steps);
/// Returns the number of steps that were asked for, and removes the file; 0: nobody asks. A file of another kind
/// asks for nothing.
int64_t take_wanted_steps(const RunFolder& folder);

}  // namespace heddle::session
