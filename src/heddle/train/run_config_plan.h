// From a configuration to the plan that the step program is lowered from, and to the trainer's options.
#pragma once

#include "heddle/plan/plan.h"
#include "heddle/train/run_config.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// What device.dtype stands for on this machine: "auto" is bf16 where the backend multiplies it in hardware.
Dtype resolved_dtype(const RunConfig& config);

/// One rank's plan of the whole model on this machine, as the trainer runs it: with evaluation and prediction.
plan::Plan plan_of(const RunConfig& config);

/// The arena that the trainer needs. ConfigError when device.memory_bytes, or the machine's memory, is not enough.
int64_t arena_bytes_of(const RunConfig& config);

/// With that arena.
TrainerOptions trainer_options_of(const RunConfig& config);

}  // namespace heddle::train
