// Constants that a script gives and no estimate needs, as settings of Heddle: a plan for Heddle must train the same
// model in the same way.
#pragma once

#include "advisor/script/launch_flags.h"
#include "advisor/script/launch_script.h"

namespace heddle::advisor {

/// Returns the settings that the trainer takes, given or by its own default, where Heddle's default is another.
/// `lost` names those that Heddle has no key for. `launch` is the job that the flags make.
Constants constants_of(const GivenFlags& flags, const Launch& launch);

}  // namespace heddle::advisor
