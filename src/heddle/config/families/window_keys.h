// Keys of config.json about attention in windows: sliding_window, use_sliding_window, max_window_layers,
// layer_types.
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// All layers have the window, where there is one; where the key is absent, one of `standard` tokens.
PublishedKey window_of_all_layers(int64_t standard);
/// Qwen3-MoE: the same, where use_sliding_window says so.
std::vector<PublishedKey> window_of_all_layers_where_used();
/// Qwen: use_sliding_window says whether, max_window_layers how many of the first layers have none (28 where it is
/// absent), layer_types may say it again.
std::vector<PublishedKey> window_of_last_layers();
/// GPT-OSS: layer_types says which layers, every second from the first on where it is absent.
std::vector<PublishedKey> window_of_every_other_layer();

/// In all layers but every n-th, n by a key of that name ("": always `interval`), or where layer_types say so. The
/// first `full` layers have none. Layers are counted from the first on, or from number `offset` (0: the first) on.
std::vector<PublishedKey> window_of_all_but_every_nth(int64_t window, const char* interval_key, int64_t interval,
                                                      int64_t full = 0, int64_t offset = 0);

}  // namespace heddle::config
