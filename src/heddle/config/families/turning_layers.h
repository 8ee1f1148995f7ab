// Which layers turn queries and keys, as config.json files say it: a number a layer, 0 where it turns nothing.
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// Sets the layers that turn: all, all but every n-th, or a letter a layer. What is said already stays where it
/// means the same.
void set_turning_layers(model::ModelConfig& config, const std::vector<bool>& turns);
/// 1 for each layer that turns, 0 for the others.
nlohmann::ordered_json turning_layers(const model::ModelConfig& config);
/// "no_rope_layers", that list; without it, or where it is empty, all but every n-th layer turn, n being
/// "no_rope_layer_interval" or `interval`.
PublishedKey no_rope_layers_key(int64_t interval);

/// "layer_rope_theta": the base of each layer's rotary frequencies, 0 where it turns nothing. Layers with a window
/// may have another base than the others. It stands behind keys of windows and of rotary positions.
PublishedKey layer_rope_theta_key();

}  // namespace heddle::config
