// Keys that config.json of all families with grouped attention has.
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// A model of grouped attention without norms on heads, whose experts, if any, are chosen by a softmax.
model::ModelConfig grouped_base();
/// Sizes, norms and heads, in the order in which they are written. Defaults are those of Transformers: keys and
/// values for every head, heads that share the hidden width.
std::vector<PublishedKey> grouped_keys(double rms_norm_eps);
/// "attention_bias": true stands for `meant`.
PublishedKey attention_bias_key(model::AttentionBias meant, bool standard = false);
/// A cap of scores or logits, `ours` among the model's keys. Null is no cap; without the key it is `standard`.
PublishedKey cap_key(const char* name, const char* ours, double model::ModelConfig::*member, double standard);
/// "mlp_layer_types", the words dense and sparse a layer, of which the dense ones come first. Without it `standard`
/// layers are dense. "first_k_dense_replace" may say the same, ConfigError where it says something else.
PublishedKey mlp_layer_types_key(int64_t standard);

/// All layers are dense.
void make_dense(model::ModelConfig& config);
/// Removes "quantization_config" of weights in FP8 or MXFP4, which reading the weights decodes or refuses by
/// itself. Every other stays, and is refused as a key.
void drop_released_quantization(Json& root);
/// The balance loss of Transformers is one of the whole batch, and off unless asked for.
void adopt_router_loss(Json& root, const std::string& place, std::vector<std::string>* warnings);

}  // namespace heddle::config
