// Mixtral: grouped attention, and in every layer experts as wide as a dense layer's MLP, chosen by a softmax.
//
// Sources: MixtralConfig of Transformers 5, gone through key by key; arXiv 2401.04088, table 1; the config.json
// files released with Mixtral-8x7B and 8x22B.
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

bool holds_mixtral(const ModelConfig& c) {
  return follows(c, only_experts) && !c.is_latent() && !c.qk_norm && !c.sigmoid_scores && c.norm_topk_prob &&
         c.n_shared_experts == 0;
}

ModelConfig sized_mixtral(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t mlp, int64_t heads,
                          int64_t positions) {
  ModelConfig c = sized(grouped_base(), {vocabulary, hidden, layers, mlp, heads, 8, positions});
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e6;
  c.n_routed_experts = 8;
  c.num_experts_per_tok = 2;
  only_experts(c);
  return c;
}

}  // namespace

Family mixtral() {
  Family f = grouped_family("MixtralForCausalLM", "mixtral", 1e-5);
  f.base.rope_theta = 1e6;
  f.keys.push_back(key("num_local_experts", "n_routed_experts", 8));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 2));
  f.keys.push_back(window_of_all_layers(0));
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "norm_topk_prob"};
  f.read_besides = {"num_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = name_num_local_experts;
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
  f.holds = holds_mixtral;
  f.spelt = spelt_block_sparse;
  f.presets = {{"mixtral-8x7b", sized_mixtral(32000, 4096, 32, 14336, 32, 32768)},
               {"mixtral-8x22b", sized_mixtral(32768, 6144, 56, 16384, 48, 65536)}};
  return f;
}

}  // namespace heddle::config
