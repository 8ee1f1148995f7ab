// The model's configuration as JSON: Hugging Face's config.json of a family (config/families), and our training
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
/// asks for what is not built. Keys without a known meaning are added to `warnings` unless null; those that do not
/// bear on the model are passed over. A file that names no family is one of DeepSeek-V3. The result is validated.
model::ModelConfig model_config_from_json(const nlohmann::json& json, const std::string& place,
                                          std::vector<std::string>* warnings = nullptr);

/// A config.json as JSON: an object, of bounded size and depth. ConfigError naming file and place where it is none.
nlohmann::json read_config_json(const std::string& path);

/// Reads a config.json that Heddle wrote.
model::ModelConfig read_model_config(const std::string& path);

/// The model of a released config.json, or of the one in that folder: its words mean what they mean to
/// Transformers, beyond the model itself too (auxiliary losses). ConfigError naming file and key where it is
/// broken, too large, of another architecture, or asks for something that Heddle computes otherwise. What was
/// passed over or taken otherwise is added to `warnings` unless null. Prediction layers that the weights in the
/// same folder lack are not counted.
model::ModelConfig read_huggingface_config(const std::string& path, std::vector<std::string>* warnings = nullptr);

/// The family of the config.json beside released weights, a folder or a file; null where it says none.
const struct Family* family_beside(const std::string& weights);

/// True if a folder is a released model's: it has a config.json, and is no run's or checkpoint's.
bool is_released_folder(const std::string& path);

/// Writes what model_config_from_json reads back as the same configuration. Transformers reads it as the same model
/// where why_unpublished has nothing against it.
nlohmann::ordered_json model_config_to_json(const model::ModelConfig& config);

/// "" where a published family has the model, else what of it none has.
std::string why_unpublished(const model::ModelConfig& config);

/// Every key of the model in which the one differs from the other, with both values; training constants may differ.
std::vector<std::string> differences(const model::ModelConfig& found, const model::ModelConfig& expected);

/// "" when parameters of the one fit the other (training constants may differ), else the first key that differs
/// with both values.
std::string difference(const model::ModelConfig& found, const model::ModelConfig& expected);

}  // namespace heddle::config
