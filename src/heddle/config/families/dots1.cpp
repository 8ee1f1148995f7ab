// dots.llm1: Qwen3's attention beside DeepSeek-V3's router and shared experts.
//
// Sources: Dots1Config and modeling_dots1.py of Transformers 5, gone through key by key; arXiv 2506.05767; the
// config.json file released with dots.llm1.base.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

void rename_dots1(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "n_routed_experts"}});
  // A window is in use where it is given; a file says so by a key of its own elsewhere.
  if (!root.contains("sliding_window")) root["sliding_window"] = 4096;
  if (root.value("max_window_layers", Json()).is_null()) root["max_window_layers"] = 62;
  root["use_sliding_window"] = !root["sliding_window"].is_null();
}

ModelConfig llm1() {
  ModelConfig c = sized(grouped_base(), {152064, 4096, 62, 10944, 32, 32, 32768});
  c.qk_norm = true;
  c.first_k_dense_replace = 1;
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e7;
  give_experts(c, {.experts = 128, .chosen = 6, .width = 1408, .shared = 2});
  c.sigmoid_scores = c.topk_bias = true;
  c.routed_scaling_factor = 2.5;
  return c;
}

}  // namespace

Family dots1() {
  Family f = grouped_family("Dots1ForCausalLM", "dots1", 1e-6);
  f.base.qk_norm = f.base.sigmoid_scores = f.base.topk_bias = true;
  add_keys(f, {
                  own_attention_bias_key(),
                  key("first_k_dense_replace", "first_k_dense_replace", 0),
                  key("n_routed_experts"),
                  key("num_experts_per_tok"),
                  key("n_shared_experts", "n_shared_experts", 0, 0),
                  key("moe_intermediate_size", "moe_intermediate_size", 1408),
                  key("n_group", "n_group", 1, 1),
                  key("topk_group", "topk_group", 1, 1),
                  key("norm_topk_prob", "norm_topk_prob", false, false),
                  key("routed_scaling_factor", "routed_scaling_factor", 1.0),
              });
  add_keys(f, window_of_last_layers());
  f.only = {{"scoring_func",
             [](const Json& v, const Json&) { return v == "sigmoid" || v == "noaux_tc"; },  // released: the latter
             "scores are sigmoids"},
            is("topk_method", "noaux_tc", "only 'noaux_tc' is built"),
            is("moe_layer_freq", 1, "every layer after the dense ones has experts")};
  f.read_besides = {"num_local_experts", "output_router_logits"};
  f.rewrite = rename_dots1;
  f.adopt = adopt_router_loss;
  f.holds = [](const ModelConfig& c) {
    return !c.is_latent() && c.has_experts() && c.qk_norm && !c.qk_norm_all_heads && c.sigmoid_scores &&
           c.partial_rotary_factor == 1 && c.attention_bias != model::AttentionBias::qkv;
  };
  f.presets = {{"dots.llm1", llm1()}};
  return f;
}

}  // namespace heddle::config
