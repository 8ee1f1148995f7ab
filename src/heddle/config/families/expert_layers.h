// Which layers have experts and which an MLP, as config.json files say it.
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// Sets the layers with experts: those behind the first so many, or a letter a layer.
void set_expert_layers(model::ModelConfig& config, const std::vector<bool>& experts);

/// "mlp_layer_types", a word dense or sparse a layer. Without it the first `standard` layers are dense.
/// "first_k_dense_replace" may say the same, ConfigError where it says something else.
PublishedKey mlp_layer_types_key(int64_t standard);
/// Qwen: every "decoder_sparse_step"-th layer has experts, but for those of the list "mlp_only_layers".
std::vector<PublishedKey> sparse_step_keys();
/// ERNIE 4.5: every "moe_layer_interval"-th layer from "moe_layer_start_index" to "moe_layer_end_index" (−1: the
/// last) has experts.
std::vector<PublishedKey> moe_layer_interval_keys();
/// Llama 4: those of the list "moe_layers"; without it every "interleave_moe_layer_step"-th.
std::vector<PublishedKey> moe_layers_keys();

}  // namespace heddle::config
