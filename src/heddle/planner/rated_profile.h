// The profile of a machine that nobody has measured.
#pragma once

#include "heddle/cost/machine_profile.h"

namespace heddle::planner {

/// Rated figures of a core for this machine's cores: good for ratios, about right for times.
cost::MachineProfile rated_profile();

}  // namespace heddle::planner
