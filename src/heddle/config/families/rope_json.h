// Rotary positions in a Hugging Face config.json: rope_theta, rope_scaling, rope_parameters.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "heddle/config/families/json_keys.h"
#include "heddle/model/model_config.h"

namespace heddle::config {

/// Sets rope_theta and rope_scaling. ConfigError where another way of scaling is asked for than those of
/// model::RopeType.
void read_rope(const JsonKeys& keys, model::ModelConfig& config);
/// Sets partial_rotary_factor, which may stand in rope_parameters too.
void read_partial_rotary(const JsonKeys& keys, double standard, model::ModelConfig& config);
/// What stands as rope_scaling: null without any.
nlohmann::ordered_json rope_scaling_json(const model::ModelConfig& config);

}  // namespace heddle::config
