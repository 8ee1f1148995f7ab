// Qwen2-MoE: Qwen2 with experts, and shared ones behind a gate. Qwen3-Next has them too, beside attention with
// norms of 1 + w, a gate an element and heads that are turned in part. Its layers of linear attention are not
// built.
//
// In Qwen3-Next's folders the projection of queries holds each head's query and, behind it, its gate, as it does
// here.
//
// Sources: Qwen2MoeConfig, Qwen3NextConfig and modeling_qwen3_next.py of Transformers 5, gone through key by key;
// the config.json files released with Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::AttentionGate;
using model::ModelConfig;
using Written = nlohmann::ordered_json;

PublishedKey qkv_bias() {
  return {.name = "qkv_bias",
          .ours = "",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.attention_bias = keys.boolean("qkv_bias", true) ? AttentionBias::qkv : AttentionBias::none;
              },
          .write = [](const ModelConfig& c) { return Written(c.attention_bias != AttentionBias::none); }};
}

void rename(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "num_experts"}});
}

// Absent layer types are three of linear attention and one of full attention.
void rewrite_next(Json& root, const std::string& place) {
  rename(root, place);
  const Json types = root.value("layer_types", Json()), interval = root.value("full_attention_interval", Json(4));
  if (types.is_null() && interval != 1) {
    config_error("{}: 'full_attention_interval' is {}: layers of linear attention are not built, 1 goes with it",
                 place, formats::shown(interval));
  }
}

// One gated shared expert of a width of its own.
void derive(ModelConfig& c) {
  c.first_k_dense_replace = 0;
  c.n_shared_experts = 1;
}

std::string spelt(std::string name) {
  return respelt(std::move(name), {{".mlp.shared_experts.", ".mlp.shared_expert."}});
}

Family common(const char* architecture, const char* model_type) {
  Family f;
  f.architecture = architecture;
  f.model_type = model_type;
  f.base = grouped_base();
  f.base.shared_expert_gate = true;
  f.base.n_shared_experts = 1;
  f.keys = grouped_keys(1e-6);
  const std::vector<PublishedKey> experts{
      fixed("mlp_only_layers", Json::array()),
      fixed("decoder_sparse_step", 1),
      key("num_experts", "n_routed_experts"),
      key("num_experts_per_tok"),
      key("moe_intermediate_size"),
      key("shared_expert_intermediate_size", "shared_intermediate_size"),
  };
  f.keys.insert(f.keys.end(), experts.begin(), experts.end());
  for (PublishedKey& each : f.keys) {  // Transformers has a default of its own for this: it must be there
    if (each.name == "num_key_value_heads") each = key("num_key_value_heads");
  }
  f.said = {"first_k_dense_replace", "n_shared_experts"};
  f.only = {is("decoder_sparse_step", 1, "every layer has experts"),
            is("mlp_only_layers", Json::array(), "every layer has experts"),
            above_zero("shared_expert_intermediate_size")};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef", "full_attention_interval"};
  f.rewrite = rename;
  f.adopt = adopt_router_loss;
  f.derive = derive;
  f.spelt = spelt;
  return f;
}

bool is_gated(const ModelConfig& c) {
  return !c.is_latent() && c.first_k_dense_replace == 0 && c.n_shared_experts == 1 && c.shared_expert_gate &&
         c.shared_intermediate_size > 0 && !c.sigmoid_scores;
}

ModelConfig sized(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads, int64_t positions) {
  ModelConfig c = grouped_base();
  c.vocab_size = 151936;
  c.hidden_size = hidden;
  c.num_hidden_layers = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.attention_bias = AttentionBias::qkv;
  c.rope_theta = 1e6;
  c.max_position_embeddings = positions;
  c.shared_expert_gate = true;
  c.norm_topk_prob = false;
  derive(c);
  return c;
}

ModelConfig qwen15() {
  ModelConfig c = sized(2048, 24, 5632, 16, 16, 8192);
  c.n_routed_experts = 60;
  c.num_experts_per_tok = 4;
  c.moe_intermediate_size = 1408;
  c.shared_intermediate_size = 5632;
  return c;
}

ModelConfig qwen2_57b() {
  ModelConfig c = sized(3584, 28, 18944, 28, 4, 131072);
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 2560;
  c.shared_intermediate_size = 20480;
  return c;
}

}  // namespace

Family qwen2_moe() {
  Family f = common("Qwen2MoeForCausalLM", "qwen2_moe");
  f.keys.push_back(qkv_bias());
  f.keys.push_back(key("norm_topk_prob", "norm_topk_prob", false));
  f.holds = [](const ModelConfig& c) { return is_gated(c) && !c.qk_norm; };
  f.presets = {{"qwen1.5-moe-a2.7b", qwen15()}, {"qwen2-57b-a14b", qwen2_57b()}};
  return f;
}

Family qwen3_next() {
  Family f = common("Qwen3NextForCausalLM", "qwen3_next");
  f.base.qk_norm = f.base.zero_centered_norms = true;
  f.base.attention_gate = AttentionGate::element;
  f.base.shared_intermediate_size = 512;
  for (PublishedKey& each : f.keys) {
    if (each.name == "head_dim") each = key("head_dim");
  }
  f.keys.push_back(partial_rotary_key(0.25));
  f.keys.push_back(key("norm_topk_prob", "norm_topk_prob", true));
  f.keys.push_back({.name = "layer_types", .write = [](const ModelConfig& c) {
                      return Written(
                          std::vector<std::string>(static_cast<size_t>(c.num_hidden_layers), "full_attention"));
                    }});
  f.read_besides.insert(f.read_besides.end(),
                        {"linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
                         "linear_num_key_heads", "linear_num_value_heads"});
  f.rewrite = rewrite_next;
  f.passed_over = [](std::string_view name) { return name.starts_with("mtp."); };
  f.holds = [](const ModelConfig& c) {
    return is_gated(c) && c.qk_norm && c.zero_centered_norms && c.attention_gate == AttentionGate::element;
  };
  return f;
}

}  // namespace heddle::config
