// A run is asked for the times of its ops by a file in its folder, which says of how many steps.
#pragma once

#include <cstdint>

#include "heddle/session/run_folder.h"

namespace heddle::session {

inline constexpr int64_t kMostTimedSteps = 1000;

/// Asks the run that trains there. SystemError.
void want_op_times(const RunFolder& folder, int64_t steps);
/// So many steps as were asked for, and the file is gone; 0: nobody asks. What is no such file asks for nothing.
int64_t take_wanted_steps(const RunFolder& folder);

}  // namespace heddle::session
