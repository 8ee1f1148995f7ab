// From a configuration to the plan that the step program is lowered from.
#pragma once

#include "heddle/plan/plan.h"
#include "heddle/train/run_config.h"

namespace heddle::train {

/// What device.dtype stands for on this machine: "auto" is bf16 where the backend multiplies it in hardware.
Dtype resolved_dtype(const RunConfig& config);

/// One rank's plan of the whole model on this machine.
plan::Plan plan_of(const RunConfig& config);

}  // namespace heddle::train
