// From a configuration to the plan that the step program is lowered from, and to the trainer's options.
#pragma once

#include "heddle/base/error.h"
#include "heddle/config/run_config.h"
#include "heddle/plan/plan.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// The dtype that device.dtype means on this machine: "auto" is bf16 where the backend multiplies it in hardware.
Dtype resolved_dtype(const config::RunConfig& config);

/// The plan of all ranks, as the trainer runs it: with evaluation and prediction.
plan::Plan plan_of(const config::RunConfig& config);

/// The number of ranks, this one among them, that share a machine's memory, and the cores of this process. Where
/// the backend has devices, also the device that is this rank's.
struct Sharing {
  int memory = 1, cores = 1;
  device::Seat seat;
  std::shared_ptr<device::Device> device;  // device of the seat, if it is open; null: whoever needs it opens it
};

/// The most that a rank's arena may be planned to have: its share of the memory.
int64_t memory_limit_of(const config::RunConfig& config, const Sharing& sharing = {});
/// The room that it needs: with memory.budget all that any routing brings.
runtime::Room room_of(const config::RunConfig& config);
/// The most that it may grow to where steps need more than was planned: what the user allows, else what there is.
int64_t growth_limit_of(const config::RunConfig& config, const Sharing& sharing = {});

/// device.memory_bytes, or the machine's memory, is not enough.
class DoesNotFit : public ConfigError {
  using ConfigError::ConfigError;
};

/// The arena that the trainer of a rank needs, with a cache of so many sequences. DoesNotFit, with the largest
/// tensors, where there is no room for it.
int64_t arena_bytes_of(const config::RunConfig& config, int rank = 0, const Sharing& sharing = {},
                       int64_t cached_sequences = 0);

/// The options with that arena, and with the device of the rank's seat. The device is opened first: kernels that
/// are asked about a plan ask the one that is in use.
TrainerOptions trainer_options_of(const config::RunConfig& config, int rank = 0, const Sharing& sharing = {},
                                  int64_t cached_sequences = 0);

/// The learning rate, in the measure of the run's length.
LearningRate learning_rate_of(const config::RunConfig& config);

}  // namespace heddle::train
