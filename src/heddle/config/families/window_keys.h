// What config.json says of attention in windows: sliding_window, use_sliding_window, max_window_layers,
// layer_types.
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// Mixtral: all layers have the window, where there is one.
PublishedKey window_of_all_layers();
/// Qwen: use_sliding_window says whether, max_window_layers how many of the first layers have none (28 where it is
/// absent), layer_types may say it again.
std::vector<PublishedKey> window_of_last_layers();
/// GPT-OSS: layer_types, or every second layer.
std::vector<PublishedKey> window_of_every_other_layer();
}  // namespace heddle::config
