// Options of a trainer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "heddle/config/learning_rate.h"
#include "heddle/device/device.h"
#include "heddle/model/model_config.h"
#include "heddle/plan/plan.h"

namespace heddle::train {

using config::LearningRate;

/// The place of copies of the state in memory.
struct SnapshotPlace {
  std::string folder;  // "": one of its own, which goes with the trainer
  std::string run;     // a name for all ranks of the job; "": any
  int64_t generation = 0;
  bool kept = false;  // whether an agent keeps them, and writes them to disk where it is asked to
};

struct TrainerOptions {
  model::ModelConfig model;
  plan::Plan plan;  // the trainer completes it
  std::string backend = "host";
  std::shared_ptr<device::Device>
      device;  // the one of `seat`; a rank that sits elsewhere opens its own, as where null
  device::Seat seat;
  int threads = 1;
  int64_t memory_bytes = 0;        // capacity of a rank's arena, as predicted; 0: what the machine has
  int64_t memory_limit_bytes = 0;  // bytes to which it may grow beyond; 0: not at all
  config::RunLength length;
  LearningRate learning_rate;
  uint64_t seed = 0;
  std::string start;            // the source of the frozen weights beside adapters, if not the seed
  int64_t outlier_window = 50;  // applied steps that say what is an outlier
  SnapshotPlace snapshots;      // the place of copies of the state, if the plan has any
  int64_t agree_every = 0;      // steps between comparisons of the ranks' controllers; 0: with checkpoints alone

  /// Adapters are trained beside frozen weights.
  bool is_adapted() const { return plan.lora.rank > 0; }
};

}  // namespace heddle::train
