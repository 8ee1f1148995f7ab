// From a configuration to the plan that the step program is lowered from, and to the trainer's options.
#pragma once

#include "heddle/plan/plan.h"
#include "heddle/train/run_config.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// What device.dtype stands for on this machine: "auto" is bf16 where the backend multiplies it in hardware.
Dtype resolved_dtype(const RunConfig& config);

/// The plan of all ranks, as the trainer runs it: with evaluation and prediction.
plan::Plan plan_of(const RunConfig& config);

/// What a rank may use where `sharing` of them run on one machine: the arena's most, and threads of its compute
/// stream.
int64_t memory_limit_of(const RunConfig& config, int sharing = 1);
int threads_of(const RunConfig& config, int sharing = 1);

/// The arena that the trainer of a rank needs. ConfigError when device.memory_bytes, or the machine's memory, is
/// not enough.
int64_t arena_bytes_of(const RunConfig& config, int rank = 0, int sharing = 1);

/// With that arena.
TrainerOptions trainer_options_of(const RunConfig& config, int rank = 0, int sharing = 1);

}  // namespace heddle::train
