// Times of programs' ops on this machine, measured where they run: in training steps, on the executor, with the
// neighbours and the caches that they have there.
#pragma once

#include <functional>
#include <string>

#include "heddle/cost/machine_profile.h"
#include "heddle/train/trainer.h"

namespace heddle::planner {

/// A training program that ran alone on the machine.
struct StepMeasure {
  std::vector<cost::OpTime> ops;  // each (kind, sizes) once: the median of all its runs
  double step_us = 0;             // median
  double between_us = 0;          // from the end of an op to the start of the next, on the compute stream
  double enqueue_us = 0;          // time of the host, an op
};

/// Runs `steps` steps after one that warms up.
StepMeasure measure_steps(const train::TrainerOptions& options, int steps);

/// The ops of a program of several ranks, one at a time, while all other ranks wait: each (kind, sizes) `runs`
/// times. Ranks are threads of this process.
std::vector<cost::OpTime> measure_rank_ops(const train::TrainerOptions& options, int runs);

/// Tokens for one step.
std::vector<std::vector<int32_t>> random_sequences(const train::Trainer& trainer, uint64_t seed);

}  // namespace heddle::planner
