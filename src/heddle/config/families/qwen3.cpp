// Qwen3, dense and with experts: grouped attention whose queries and keys are normed head by head.
//
// Sources: Qwen3Config and Qwen3MoeConfig of Transformers 5, gone through key by key, and the config.json files
// released with Qwen3-0.6B and Qwen3-30B-A3B.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

Family common_qwen3(const char* architecture, const char* model_type) {
  Family f = grouped_family(architecture, model_type, 1e-6);
  f.base.qk_norm = true;
  f.keys.push_back(own_attention_bias_key());
  f.adopt = adopt_router_loss;
  return f;
}

// The config.json files released with the models.
ModelConfig sized_qwen3(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, bool tied) {
  ModelConfig c = sized(grouped_base(), {151936, hidden, layers, mlp, heads, 8, 40960, 128});
  make_dense(c);
  c.qk_norm = true;
  c.tie_word_embeddings = tied;
  c.rope_theta = 1e6;
  return c;
}

ModelConfig mixture_qwen3(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t expert) {
  ModelConfig c = sized_qwen3(hidden, layers, mlp, heads, false);
  c.first_k_dense_replace = 0;
  c.num_key_value_heads = 4;
  give_experts(c, {.experts = 128, .chosen = 8, .width = expert});
  return c;
}

}  // namespace

Family qwen3() {
  Family f = common_qwen3("Qwen3ForCausalLM", "qwen3");
  f.holds = [](const ModelConfig& c) { return !c.is_latent() && !c.has_experts(); };
  f.derive = make_dense;
  add_keys(f, window_of_last_layers());
  f.presets = {{"qwen3-0.6b", sized_qwen3(1024, 28, 3072, 16, true)},
               {"qwen3-1.7b", sized_qwen3(2048, 28, 6144, 16, true)},
               {"qwen3-4b", sized_qwen3(2560, 36, 9728, 32, true)},
               {"qwen3-8b", sized_qwen3(4096, 36, 12288, 32, false)},
               {"qwen3-14b", sized_qwen3(5120, 40, 17408, 40, false)},
               {"qwen3-32b", sized_qwen3(5120, 64, 25600, 64, false)}};
  return f;
}

Family qwen3_moe() {
  Family f = common_qwen3("Qwen3MoeForCausalLM", "qwen3_moe");
  // Transformers gives all its layers the window, whatever max_window_layers says.
  add_keys(f, window_of_all_layers_where_used());
  add_keys(f, sparse_step_keys());
  add_keys(f, {
                  key("num_experts", "n_routed_experts"),
                  key("num_experts_per_tok"),
                  key("moe_intermediate_size"),
                  key("norm_topk_prob", "norm_topk_prob", false),
              });
  f.only = {is("use_qk_norm", true, "queries and keys are normed"), off("qkv_bias", "attention_bias says it"),
            off("shared_expert_intermediate_size", "shared experts are not built")};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef"};
  f.rewrite = name_num_experts;
  f.holds = [](const ModelConfig& c) { return !c.is_latent() && c.has_experts(); };
  f.presets = {{"qwen3-30b-a3b", mixture_qwen3(2048, 48, 6144, 32, 768)},
               {"qwen3-235b-a22b", mixture_qwen3(4096, 94, 12288, 64, 1536)}};
  return f;
}

}  // namespace heddle::config
