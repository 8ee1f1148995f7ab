// Rotary positions in a Hugging Face config.json: rope_theta, rope_scaling, rope_parameters.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "heddle/config/families/json_keys.h"
#include "heddle/model/model_config.h"

namespace heddle::config {

/// The section of rotary keys that Transformers takes: rope_scaling unless it is absent or empty, else
/// rope_parameters. Null keys: the file has neither.
struct RopeSection {
  const char* name;
  const nlohmann::json* keys;
};
RopeSection rope_section(const JsonKeys& keys);
/// A section's rope_type, else its type, else "default".
std::string rope_kind(const JsonKeys& section);

/// Sets rope_theta and rope_scaling. ConfigError where another way of scaling is asked for than those of
/// model::RopeType.
void read_rope(const JsonKeys& keys, model::ModelConfig& config);
/// Sets partial_rotary_factor, which may stand in rope_parameters too.
void read_partial_rotary(const JsonKeys& keys, double standard, model::ModelConfig& config);
/// Puts rotary keys by kind of layer, {"full_attention": {…}, "sliding_attention": {…}}, where others have them: of
/// full attention into rope_theta and rope_scaling, the base of layers with a window into `window_theta`.
/// ConfigError where positions of layers with a window are stretched, or of another part of a head; and where
/// rope_parameters has other keys, or stands beside rope_scaling.
void flatten_rotation_by_layer(nlohmann::json& root, const std::string& place, const char* window_theta);

/// The value of rope_scaling: null without any.
nlohmann::ordered_json rope_scaling_json(const model::ModelConfig& config);

/// Phi models are stretched by longrope alone, which old files call "su" and "yarn". Puts "longrope" there;
/// ConfigError for another type.
void name_longrope(nlohmann::json& root, const std::string& place);

}  // namespace heddle::config
