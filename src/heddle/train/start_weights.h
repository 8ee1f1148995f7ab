// A new run that begins from weights that were trained before: other data, length, batch, rate, layout; positions
// may be scaled anew. (A run that goes on as if it had not stopped is resumed: session/run_checkpoint.)
#pragma once

#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/train/trainer.h"

namespace heddle::train {

/// Puts the weights that lie at `path` into a trainer that is initialised. `path` is a run's folder or its
/// checkpoints (the newest whole one), a checkpoint, or a released model (a folder or one file). Every rank reads
/// what it holds. The step count stays 0. Returns what differs from the model that they were trained in, and where
/// a file was passed over, a line each. ConfigError when nothing is there, when tensors are missing, have another
/// shape or belong nowhere, and when moments are to be kept that are not there; nothing is changed then.
std::vector<std::string> start_from(const std::string& path, config::StartMoments moments, Trainer& trainer);

/// Checks before there is a trainer: ConfigError where nothing is there, no model is, or moments are to be kept
/// that can't be.
void check_start(const std::string& path, config::StartMoments moments, const passes::Adapters& lora);

}  // namespace heddle::train
