// Keys that config.json of all families with grouped attention has.
#pragma once

#include <vector>

#include "heddle/config/families/expert_layers.h"
#include "heddle/config/families/family.h"

namespace heddle::config {

/// A model of grouped attention without norms on heads, whose experts, if any, are chosen by a softmax.
model::ModelConfig grouped_base();
/// Sizes, norms and heads, in the order in which they are written. Defaults are those of Transformers: keys
/// and values for every head, heads that share the hidden width.
std::vector<PublishedKey> grouped_keys(double rms_norm_eps);
/// A family of `base` with these keys.
Family grouped_family(const char* architecture, const char* model_type, double rms_norm_eps,
                      model::ModelConfig base = grouped_base());

/// Sizes of a published model.
struct GroupedSizes {
  int64_t vocabulary, hidden, layers, mlp, heads, kv_heads, positions, head_dim = 0;  // 0: hidden ÷ heads
};
model::ModelConfig sized(model::ModelConfig base, const GroupedSizes& sizes);
/// Experts of a published model, of which each token has `chosen`; shared −1: as the model has them.
struct ExpertSizes {
  int64_t experts, chosen, width, shared = -1;
};
void give_experts(model::ModelConfig& config, const ExpertSizes& sizes);

/// "attention_bias": true stands for `meant`.
PublishedKey attention_bias_key(model::AttentionBias meant, bool standard = false,
                                const char* name = "attention_bias", const char* ours = "attention_bias");
/// Makes that key for models whose biases true and false may not tell apart: "heddle" says such biases.
PublishedKey own_attention_bias_key(model::AttentionBias meant = model::AttentionBias::all);
/// A cap of scores or logits, `ours` among the model's keys. Null is no cap; without the key it is `standard`.
PublishedKey cap_key(const char* name, const char* ours, double model::ModelConfig::*member, double standard);
/// "num_key_value_heads": so many without the key, where null is a key for every head.
PublishedKey kv_heads_key(int64_t standard);
/// Null: heads share the width.
PublishedKey head_dim_key(int64_t standard);
/// A factor on logits, above 0.
PublishedKey logits_factor_key(const char* name, double standard);
/// All layers are dense.
void make_dense(model::ModelConfig& config);
/// Each layer has experts instead of a dense MLP, and as wide.
void only_experts(model::ModelConfig& config);
/// True if `derive` leaves the model as it is.
bool follows(const model::ModelConfig& config, void (*derive)(model::ModelConfig&));
/// Family::rewrite: one name for the number of experts.
void name_num_experts(Json& root, const std::string& place);
void name_num_local_experts(Json& root, const std::string& place);
/// The balance loss of Transformers is one of the whole batch, and off unless asked for.
void adopt_router_loss(Json& root, const std::string& place, std::vector<std::string>* warnings);

}  // namespace heddle::config
