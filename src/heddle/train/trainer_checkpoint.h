// A trainer's state to and from checkpoints, on any number of ranks: what is written are the whole tensors, byte
// for byte those that one rank of the same state would write, and each rank reads its own elements from the file.
#pragma once

#include <functional>
#include <string>

#include "heddle/train/checkpoint.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// Writes FOLDER/step-NNNNNN by rank 0 and returns its path on every rank; all ranks call it together. Tensors are
/// gathered one after another, some megabytes at a time. Step and model of `state` are set from the trainer.
std::string save_trainer(const std::string& folder, CheckpointState state, Trainer& trainer, int keep = 3);

/// Puts a rank where the checkpoint left the job: state, weights, steps done, and beside adapters the frozen
/// weights; all ranks call it together. ConfigError when it is another model's.
void load_trainer(const Checkpoint& checkpoint, Trainer& trainer);

/// Gathers a tensor at rank 0, which gets its bytes in order through `write`; all ranks call it together.
void gather_tensor(Trainer& trainer, const StateTensor& tensor,
                   const std::function<void(const void* data, size_t size_bytes)>& write);

}  // namespace heddle::train
