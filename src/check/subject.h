// The model of a dump, in the words that its layout.json has it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/model/model_config.h"

namespace heddle::check {

/// `model` is an object with one of `config` (a config.json of Transformers), `toml` (a configuration of Heddle)
/// and `megatron` (arguments of Megatron-LM, or a script that starts it). ConfigError that begins with `place`.
model::ModelConfig read_subject(const nlohmann::json& model, const std::string& place, int64_t sequence_length,
                                std::vector<std::string>& warnings);

}  // namespace heddle::check
