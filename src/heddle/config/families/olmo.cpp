// OLMo 2, dense, whose norms are of the outputs of attention and MLP, and OLMoE, with experts in every layer. Both
// norm queries and keys over all heads.
//
// Sources: Olmo2Config and OlmoeConfig of Transformers 5, gone through key by key; arXiv 2501.00656 and 2409.02060;
// the config.json files released with OLMo-2-1124-7B, OLMo-2-0325-32B and OLMoE-1B-7B-0924.
#include "heddle/config/families/grouped_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::NormPlaces;

ModelConfig base(NormPlaces places) {
  ModelConfig c = grouped_base();
  c.qk_norm = c.qk_norm_all_heads = true;
  c.norm_places = places;
  return c;
}

// As wide as the hidden states; Transformers has no other heads in these.
Family common(const char* architecture, const char* model_type, NormPlaces places) {
  Family f;
  f.architecture = architecture;
  f.model_type = model_type;
  f.base = base(places);
  f.keys = grouped_keys(1e-5);
  f.keys.push_back(attention_bias_key(model::AttentionBias::all));
  f.keys.back().ours = "";
  return f;
}

ModelConfig sized(ModelConfig c, int64_t vocabulary, int64_t hidden, int64_t layers, int64_t mlp, int64_t heads,
                  int64_t kv_heads) {
  c.vocab_size = vocabulary;
  c.hidden_size = hidden;
  c.num_hidden_layers = c.first_k_dense_replace = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.max_position_embeddings = 4096;
  return c;
}

ModelConfig olmo2_sized(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads) {
  ModelConfig c = sized(base(NormPlaces::after), 100352, hidden, layers, mlp, heads, kv_heads);
  c.rms_norm_eps = 1e-6;
  c.rope_theta = 5e5;
  return c;
}

// Its experts are what it has instead of a dense MLP.
void only_experts(ModelConfig& c) {
  c.moe_intermediate_size = c.intermediate_size;
  c.first_k_dense_replace = 0;
}

ModelConfig olmoe_1b_7b() {
  ModelConfig c = sized(base(NormPlaces::before), 50304, 2048, 16, 1024, 16, 16);
  c.rms_norm_eps = 1e-5;
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 8;
  c.norm_topk_prob = false;
  only_experts(c);
  return c;
}

void rename(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "num_experts"}});
}

bool has_norms_of(const ModelConfig& c, NormPlaces places) {
  return !c.is_latent() && c.qk_norm && c.qk_norm_all_heads && c.norm_places == places;
}

}  // namespace

Family olmo2() {
  Family f = common("Olmo2ForCausalLM", "olmo2", NormPlaces::after);
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) { return has_norms_of(c, NormPlaces::after) && !c.has_experts(); };
  f.presets = {{"olmo-2-1b", olmo2_sized(2048, 16, 8192, 16, 16)},
               {"olmo-2-7b", olmo2_sized(4096, 32, 11008, 32, 32)},
               {"olmo-2-13b", olmo2_sized(5120, 40, 13824, 40, 40)},
               {"olmo-2-32b", olmo2_sized(5120, 64, 27648, 40, 8)}};
  return f;
}

Family olmoe() {
  Family f = common("OlmoeForCausalLM", "olmoe", NormPlaces::before);
  f.keys.push_back(key("num_experts", "n_routed_experts", 64));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 8));
  f.keys.push_back(key("norm_topk_prob", "norm_topk_prob", false));
  f.said = {"moe_intermediate_size", "first_k_dense_replace"};
  f.only = {never("clip_qkv", "clipped queries, keys and values are not built")};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = rename;
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
  f.holds = [](const ModelConfig& c) {
    ModelConfig same = c;
    only_experts(same);
    return same == c && has_norms_of(c, NormPlaces::before) && !c.sigmoid_scores && c.n_shared_experts == 0;
  };
  f.presets = {{"olmoe-1b-7b", olmoe_1b_7b()}};
  return f;
}

}  // namespace heddle::config
