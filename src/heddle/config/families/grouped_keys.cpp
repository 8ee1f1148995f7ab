#include "heddle/config/families/grouped_keys.h"

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::ModelConfig;

void read_kv_heads(const JsonKeys& keys, ModelConfig& c) {
  c.num_key_value_heads = keys.whole("num_key_value_heads", c.num_attention_heads);
}
void read_head_dim(const JsonKeys& keys, ModelConfig& c) {
  c.head_dim = keys.whole("head_dim", c.hidden_size / std::max<int64_t>(1, c.num_attention_heads));
}

}  // namespace

ModelConfig grouped_base() {
  ModelConfig c;
  c.attention = ModelConfig::Attention::grouped;
  c.qk_norm = c.rope_interleave = false;
  c.n_shared_experts = 0;
  c.sigmoid_scores = c.topk_bias = false;
  return c;
}

std::vector<PublishedKey> grouped_keys(double rms_norm_eps) {
  return {
      key("vocab_size"),
      key("hidden_size"),
      key("num_hidden_layers"),
      key("intermediate_size"),
      fixed("hidden_act", "silu"),
      key("rms_norm_eps", "rms_norm_eps", rms_norm_eps),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("max_position_embeddings"),
      fixed("attention_dropout", 0.0),
      key("num_attention_heads"),
      {.name = "num_key_value_heads", .ours = "num_key_value_heads", .read = read_kv_heads},
      {.name = "head_dim", .ours = "head_dim", .read = read_head_dim},
      rope_theta_key(),
      rope_scaling_key(),
  };
}

Family grouped_family(const char* architecture, const char* model_type, double rms_norm_eps, ModelConfig base) {
  Family f;
  f.architecture = architecture;
  f.model_type = model_type;
  f.base = std::move(base);
  f.keys = grouped_keys(rms_norm_eps);
  return f;
}

ModelConfig sized(ModelConfig c, const GroupedSizes& s) {
  c.vocab_size = s.vocabulary;
  c.hidden_size = s.hidden;
  c.num_hidden_layers = s.layers;
  c.intermediate_size = s.mlp;
  c.num_attention_heads = s.heads;
  c.num_key_value_heads = s.kv_heads;
  c.max_position_embeddings = s.positions;
  c.head_dim = s.head_dim > 0 ? s.head_dim : s.hidden / s.heads;
  return c;
}

void give_experts(ModelConfig& config, const ExpertSizes& sizes) {
  config.n_routed_experts = sizes.experts;
  config.num_experts_per_tok = sizes.chosen;
  config.moe_intermediate_size = sizes.width;
  if (sizes.shared >= 0) config.n_shared_experts = sizes.shared;
}

PublishedKey attention_bias_key(AttentionBias meant, bool standard, const char* name, const char* ours) {
  return {.name = name,
          .ours = ours,
          .read =
              [=](const JsonKeys& keys, ModelConfig& c) {
                c.attention_bias = keys.boolean(name, standard) ? meant : AttentionBias::none;
              },
          .write =
              [](const ModelConfig& c) { return nlohmann::ordered_json(c.attention_bias != AttentionBias::none); }};
}

PublishedKey own_attention_bias_key(AttentionBias meant) {
  return attention_bias_key(meant, false, "attention_bias", "");
}

PublishedKey cap_key(const char* name, const char* ours, double ModelConfig::*member, double standard) {
  return {.name = name,
          .ours = ours,
          .read = [=](const JsonKeys& keys,
                      ModelConfig& c) { c.*member = keys.number(name, keys.contains(name) ? 0 : standard); },
          .write =
              [=](const ModelConfig& c) {
                return c.*member > 0 ? nlohmann::ordered_json(c.*member) : nlohmann::ordered_json();
              }};
}

PublishedKey kv_heads_key(int64_t standard) {
  return {.name = "num_key_value_heads",
          .ours = "num_key_value_heads",
          .read = [=](const JsonKeys& keys, ModelConfig& c) {
            const bool is_null =
                keys.contains("num_key_value_heads") && keys.find("num_key_value_heads") == nullptr;
            c.num_key_value_heads = keys.whole("num_key_value_heads", is_null ? c.num_attention_heads : standard);
          }};
}

PublishedKey head_dim_key(int64_t standard) {
  return {.name = "head_dim", .ours = "head_dim", .read = [=](const JsonKeys& keys, ModelConfig& c) {
            if (keys.contains("head_dim")) return read_head_dim(keys, c);
            c.head_dim = standard;
          }};
}

PublishedKey logits_factor_key(const char* name, double standard) {
  return {.name = name,
          .ours = "logits_divisor",
          .read =
              [=](const JsonKeys& keys, ModelConfig& c) {
                const double factor = keys.number(name, standard);
                if (!(factor > 0))
                  config_error("{}: '{}' is {}, a number above 0 is expected", keys.place(), name, factor);
                c.logits_divisor = 1 / factor;
              },
          .write = [](const ModelConfig& c) { return nlohmann::ordered_json(1 / c.logits_divisor); }};
}

void make_dense(ModelConfig& config) { config.first_k_dense_replace = config.num_hidden_layers; }

void only_experts(ModelConfig& config) {
  config.moe_intermediate_size = config.intermediate_size;
  config.first_k_dense_replace = 0;
}

bool follows(const ModelConfig& config, void (*derive)(ModelConfig&)) {
  ModelConfig same = config;
  derive(same);
  return same == config;
}

void name_num_experts(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "num_experts"}});
}
void name_num_local_experts(Json& root, const std::string& place) {
  join_names(root, place, {{"num_experts", "num_local_experts"}});
}

void adopt_router_loss(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  if (root.value("output_router_logits", Json()) != true || warnings == nullptr) return;
  const Json loss = root.value("router_aux_loss_coef", Json(0.001));
  warnings->push_back(
      fmt::format("{}: 'router_aux_loss_coef' is {} over the whole batch, which is not built: taken as 0", place,
                  formats::shown(loss)));
}

}  // namespace heddle::config
