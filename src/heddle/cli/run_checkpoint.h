// A trainer's state to the checkpoints of its run.
#pragma once

#include <map>
#include <string>

#include "heddle/cli/run_folder.h"
#include "heddle/train/trainer_checkpoint.h"

namespace heddle::cli {

/// Writes the checkpoint of the steps done and returns its path; every rank calls it. `data` identifies tokenizer
/// and tokens.
std::string save_run(const RunFolder& folder, const train::RunConfig& config,
                     const std::map<std::string, std::string>& data, train::Trainer& trainer);

}  // namespace heddle::cli
