// A trainer's state to and from the checkpoints of its run.
#pragma once

#include <string>
#include <vector>

#include "heddle/cli/run_folder.h"
#include "heddle/train/checkpoint.h"
#include "heddle/train/trainer.h"

namespace heddle::cli {

/// Masters, moments and biases as whole tensors, pointing into the trainer's arena.
std::vector<train::LogicalTensor> logical_state(train::Trainer& trainer);

/// Writes the checkpoint of the steps done and returns its path. `data` identifies tokenizer and tokens.
std::string save_run(const RunFolder& folder, const train::RunConfig& config,
                     const std::map<std::string, std::string>& data, train::Trainer& trainer);

/// Puts the trainer where the checkpoint left it. ConfigError when it is another model's.
void restore_run(const train::Checkpoint& checkpoint, train::Trainer& trainer);

}  // namespace heddle::cli
