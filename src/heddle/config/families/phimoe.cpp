// Phi-MoE (GRIN-MoE, Phi-3.5-MoE): Mixtral with LayerNorms, biases, and two experts a token that are chosen and
// gated one after the other (model.sparse_mixer).
//
// Sources: Liu et al., arXiv 2409.12136; Microsoft, arXiv 2404.14219; the config.json files released with GRIN-MoE
// and Phi-3.5-MoE-instruct; PhimoeConfig and the model of Transformers 5, gone through key by key. The choice is
// that of Transformers outside of training, the best expert each time. The gradient is that of its gates. Where
// training draws experts at random, the gradient of the best is the same.
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::ModelConfig;

// Null stands for as many as heads, an absent key for 8.
void read_kv_heads_phimoe(const JsonKeys& keys, ModelConfig& c) {
  const bool is_null = keys.contains("num_key_value_heads");
  c.num_key_value_heads = keys.whole("num_key_value_heads", is_null ? c.num_attention_heads : 8);
}

ModelConfig phimoe_base() {
  ModelConfig c = grouped_base();
  c.norm = model::Norm::layer;
  c.sparse_mixer = true;
  c.norm_topk_prob = false;
  c.num_experts_per_tok = 2;
  c.rope_theta = 1e6;
  return c;
}

bool holds_phimoe(const ModelConfig& c) {
  return follows(c, only_experts) && !c.is_latent() && c.sparse_mixer && c.norm == model::Norm::layer &&
         !c.qk_norm && c.n_shared_experts == 0 && c.zero_expert_num == 0 && !c.recurs();
}

ModelConfig phi35_moe() {
  ModelConfig c = sized(phimoe_base(), {32064, 4096, 32, 6400, 32, 8, 4096});
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 10000;
  c.attention_bias = AttentionBias::all;
  c.head_bias = true;
  c.n_routed_experts = 16;
  only_experts(c);
  return c;
}

}  // namespace

Family phimoe() {
  Family f = grouped_family("PhimoeForCausalLM", "phimoe", 1e-5, phimoe_base());
  for (PublishedKey& each : f.keys) {
    if (each.name == "num_key_value_heads") each.read = read_kv_heads_phimoe;
  }
  f.keys.push_back(attention_bias_key(AttentionBias::all, false));
  f.keys.push_back(key("lm_head_bias", "head_bias", false, false));
  f.keys.push_back(window_of_all_layers(0));
  f.keys.push_back(key("num_local_experts", "n_routed_experts", 16));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 2));
  f.keys.push_back(key("router_jitter_noise", "router_jitter_noise", 0.01));
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "norm", "sparse_mixer", "norm_topk_prob"};
  f.only = {off("input_jitter_noise", "noise on the experts' rows is not built")};
  f.read_besides = {"num_experts", "output_router_logits", "router_aux_loss_coef", "hidden_dropout"};
  f.rewrite = [](Json& root, const std::string& place) {
    name_longrope(root, place);
    join_names(root, place, {{"num_experts", "num_local_experts"}});
  };
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
  f.holds = holds_phimoe;
  f.spelt = spelt_block_sparse;
  f.presets = {{"phi-3.5-moe", phi35_moe()}};
  return f;
}

}  // namespace heddle::config
