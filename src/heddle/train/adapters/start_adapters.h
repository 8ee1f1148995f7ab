// Adapters that a run begins from.
#pragma once

#include <string>

#include "heddle/train/trainer.h"

namespace heddle::train {

/// Begins a trainer's adapters from a folder with PEFT's files: every rank reads what it holds. ConfigError where
/// the folder's rank, alpha or kind is another than the trainer's, or a tensor is missing, misshapen, or belongs
/// nowhere.
void start_adapters_from(const std::string& folder, Trainer& trainer);

/// Checks the folder before there is a trainer, whose adapters will be these: ConfigError where it holds none, or
/// of another rank, alpha or kind.
void check_start_adapters(const std::string& folder, const passes::Adapters& lora);

}  // namespace heddle::train
