// The model's configuration as JSON: Hugging Face's config.json of DeepseekV3ForCausalLM, and our training
// constants.
//
// Our own constants, which that format does not have, stand in an object "heddle"; Transformers passes over it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/model/model_config.h"

namespace heddle::config {

/// `place` (a file's name) begins every message. ConfigError names the key that is missing, of the wrong type, or
/// asks for what is not built (see config_keys.h). Keys without a known meaning are added to `warnings` unless
/// null; those that do not bear on the model are passed over. The result is validated.
model::ModelConfig model_config_from_json(const nlohmann::json& json, const std::string& place,
                                          std::vector<std::string>* warnings = nullptr);

/// Reads a config.json.
model::ModelConfig read_model_config(const std::string& path);

/// What model_config_from_json reads back as the same configuration, and Transformers as the same model.
nlohmann::ordered_json model_config_to_json(const model::ModelConfig& config);

/// "" when parameters of the one fit the other (training constants may differ), else the first key that differs
/// with both values.
std::string difference(const model::ModelConfig& found, const model::ModelConfig& expected);

}  // namespace heddle::config
