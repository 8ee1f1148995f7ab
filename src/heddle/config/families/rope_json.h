// Rotary positions in a Hugging Face config.json: rope_theta, rope_scaling, rope_parameters.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "heddle/config/families/json_keys.h"
#include "heddle/model/model_config.h"

namespace heddle::config {

/// Sets rope_theta and rope_scaling. ConfigError where another way of scaling is asked for than YaRN.
void read_rope(const JsonKeys& keys, model::ModelConfig& config);
/// What stands as rope_scaling: null without any.
nlohmann::ordered_json rope_scaling_json(const model::ModelConfig& config);

}  // namespace heddle::config
