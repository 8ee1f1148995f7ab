// heddle train with a released model in place of a configuration: `heddle train Qwen/Qwen3-0.6B --data talk.jsonl
// --lora`. The model's folder and the samples decide a configuration with stated defaults. It is written as a file
// that can be read, changed and trained again.
#pragma once

#include <string>

#include "heddle/cli/train/train_options.h"

namespace heddle::cli {

/// The folder of a released model that the words name: a folder, or a model of the Hub that its cache holds. ""
/// where they name a file, or nothing of the kind. ConfigError for a model of the Hub that is not there, or not
/// whole, with the command that downloads it.
std::string released_folder(const std::string& words);

/// The configuration for the options, whose `config` is such a model: the path of the file that was written, by
/// default runs/NAME.toml. With `tells` it prints what it assumes on standard error. ConfigError for options that
/// do not go with a model, and for a file of that name that says otherwise.
std::string config_of_released(const TrainOptions& options, const std::string& folder, bool tells);

}  // namespace heddle::cli
