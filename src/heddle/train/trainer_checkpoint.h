// A trainer's state to and from checkpoints, on any number of ranks. Each writes what it owns in a shard of its own
// (train/saved/shard.h), a rank alone whole tensors, and each reads its own elements from whatever was written.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/train/checkpoint.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// Writes FOLDER/step-NNNNNN, all ranks at once, and returns its path on every rank; all ranks call it together.
/// `state` is completed from the trainer.
std::string save_trainer(const std::string& folder, CheckpointState state, Trainer& trainer, int keep = 3);

/// The bytes of the tensors in a checkpoint of this job, of all ranks together.
int64_t checkpoint_bytes(Trainer& trainer);

/// The state with what the trainer knows of it: step, model, adapters, steps left out.
CheckpointState state_of_trainer(CheckpointState state, Trainer& trainer);

/// Puts a rank where the checkpoint left the job: state, weights, steps done, and beside adapters the frozen
/// weights; all ranks call it together. ConfigError when it is another model's.
void load_trainer(const Checkpoint& checkpoint, Trainer& trainer);

/// A tensor of the state that holds something which is not finite, on any rank; "": there is none. A copy may have
/// been taken of a state that was struck after its step had been found well. All ranks call it together.
std::string not_finite_in(Trainer& trainer);

}  // namespace heddle::train
