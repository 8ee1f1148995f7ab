// What the config.json of families with grouped attention have in common.
#pragma once

#include <vector>

#include "heddle/config/families/family.h"

namespace heddle::config {

/// A model of grouped attention without norms on heads, whose experts, if any, are chosen by a softmax.
model::ModelConfig grouped_base();
/// Sizes, norms and heads, in the order in which they are written; what may be absent is what Transformers takes:
/// keys and values for every head, heads that share the hidden width.
std::vector<PublishedKey> grouped_keys(double rms_norm_eps);
/// "attention_bias": true stands for `meant`.
PublishedKey attention_bias_key(model::AttentionBias meant);

/// All layers are dense.
void make_dense(model::ModelConfig& config);
/// The balance loss of Transformers is one of the whole batch, and off unless asked for.
void adopt_router_loss(Json& root, const std::string& place, std::vector<std::string>* warnings);

}  // namespace heddle::config
