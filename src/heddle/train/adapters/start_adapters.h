// Adapters that a run begins from.
#pragma once

#include <string>

#include "heddle/train/trainer.h"

namespace heddle::train {

/// Begins a trainer's adapters from a folder with PEFT's files: every rank reads what it holds. ConfigError where
/// the folder's rank, alpha or kind is another than the trainer's, or a tensor is missing, misshapen, or belongs
/// nowhere.
void start_adapters_from(const std::string& folder, Trainer& trainer);

}  // namespace heddle::train
