// Mixtral: grouped attention, and in every layer experts as wide as a dense layer's MLP, chosen by a softmax.
//
// Sources: MixtralConfig of Transformers 5, gone through key by key; arXiv 2401.04088, table 1; the config.json
// files released with Mixtral-8x7B and 8x22B.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

void rename_mixtral(Json& root, const std::string& place) {
  join_names(root, place, {{"num_experts", "num_local_experts"}});
}

// Its experts are what it has instead of a dense MLP.
void derive_mixtral(ModelConfig& c) {
  c.moe_intermediate_size = c.intermediate_size;
  c.first_k_dense_replace = 0;
}

bool holds_mixtral(const ModelConfig& c) {
  ModelConfig same = c;
  derive_mixtral(same);
  return same == c && !c.is_latent() && !c.qk_norm && !c.sigmoid_scores && c.norm_topk_prob &&
         c.n_shared_experts == 0;
}

// Names of the router and of expert e: gate, w1 (gate), w3 (up) and w2 (down).
std::string spelt_mixtral(std::string name) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    if (const size_t at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
  };
  if (name.find(".mlp.gate.") == std::string::npos && name.find(".mlp.experts.") == std::string::npos) return name;
  replace(".mlp.", ".block_sparse_moe.");
  replace(".gate_proj.", ".w1.");
  replace(".up_proj.", ".w3.");
  replace(".down_proj.", ".w2.");
  return name;
}

ModelConfig sized_mixtral(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t mlp, int64_t heads,
                          int64_t positions) {
  ModelConfig c = grouped_base();
  c.vocab_size = vocabulary;
  c.hidden_size = hidden;
  c.num_hidden_layers = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = heads;
  c.num_key_value_heads = 8;
  c.head_dim = hidden / heads;
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e6;
  c.max_position_embeddings = positions;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  derive_mixtral(c);
  return c;
}

}  // namespace

Family mixtral() {
  Family f;
  f.architecture = "MixtralForCausalLM";
  f.model_type = "mixtral";
  f.base = grouped_base();
  f.base.rope_theta = 1e6;
  f.keys = grouped_keys(1e-5);
  f.keys.push_back(key("num_local_experts", "n_routed_experts", 8));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 2));
  f.keys.push_back(window_of_all_layers(0));
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "norm_topk_prob"};
  f.read_besides = {"num_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = rename_mixtral;
  f.adopt = adopt_router_loss;
  f.derive = derive_mixtral;
  f.holds = holds_mixtral;
  f.spelt = spelt_mixtral;
  f.presets = {{"mixtral-8x7b", sized_mixtral(32000, 4096, 32, 14336, 32, 32768)},
               {"mixtral-8x22b", sized_mixtral(32768, 6144, 56, 16384, 48, 65536)}};
  return f;
}

}  // namespace heddle::config
