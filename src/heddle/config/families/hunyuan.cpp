// Hunyuan-A13B turns queries and keys before it norms them. Its experts are chosen by a softmax, beside one shared
// expert as wide; the dense models of its time have none. Hunyuan 3 (Hy3) is dots.llm1 under other names.
//
// Sources: HunYuanMoEV1Config, HunYuanDenseV1Config, HYV3Config and their models of Transformers 5, gone through
// key by key; the config.json files released with Hunyuan-A13B-Pretrain and Hy3.
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

// A list with one value for every layer is that value.
void join_layers(Json& root, const std::string& place, const char* name) {
  const Json list = root.value(name, Json());
  if (!list.is_array() || list.empty()) return;
  for (const Json& each : list) {
    if (each != list[0]) config_error("{}: '{}' differs between layers, which is not built", place, name);
  }
  if (list.size() != root.value("num_hidden_layers", Json()))
    config_error("{}: '{}' has {} values, one for each of 'num_hidden_layers' is expected", place, name,
                 list.size());
  root[name] = list[0];
}

// A longer context by "alpha" is a larger base: theta · alpha^(d ÷ (d − 2)) of heads of d elements.
void stretch_base(Json& root, const std::string& place) {
  const JsonKeys keys(root, place, "");
  const RopeSection section = rope_section(keys);
  if (section.keys == nullptr) return;
  const JsonKeys rope(*section.keys, place, section.name + std::string("."));
  if (rope.find("alpha") == nullptr) return;
  if (const std::string kind = rope_kind(rope); kind != "dynamic") {
    config_error("{}: '{}.alpha' goes with the type 'dynamic', which is '{}'", place, section.name,
                 escaped(kind, 60));
  }
  rope.refuse_others(
      {"type", "rope_type", "alpha", "factor", "rope_theta", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"});
  const double alpha = rope.number("alpha"), d = keys.number("head_dim"),
               theta = rope.number("rope_theta", keys.number("rope_theta", 1e4));
  if (!(alpha > 0) || !(d > 2))
    config_error("{}: '{}.alpha' must be above 0, and 'head_dim' above 2", place, section.name);
  root["rope_theta"] = theta * std::pow(alpha, d / (d - 2));
  root.erase("rope_scaling");
  root.erase("rope_parameters");
}

void rewrite_a13b(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_local_experts", "num_experts"},
              {"num_experts_per_tok", "moe_topk"},
              {"attention_head_dim", "head_dim"}});
  for (const char* name : {"num_experts", "moe_topk", "moe_intermediate_size", "num_shared_expert"})
    join_layers(root, place, name);
  stretch_base(root, place);
}

void derive_a13b(ModelConfig& c) {
  only_experts(c);
  c.n_shared_experts = 1;
}

std::string spelt_a13b(std::string name) {
  return respelt(std::move(name), {{".self_attn.q_norm.", ".self_attn.query_layernorm."},
                                   {".self_attn.k_norm.", ".self_attn.key_layernorm."},
                                   {".mlp.gate.weight", ".mlp.gate.wg.weight"},
                                   {".mlp.shared_experts.", ".mlp.shared_mlp."}});
}

ModelConfig a13b() {
  ModelConfig c = sized(grouped_base(), {128167, 4096, 32, 3072, 32, 8, 32768});
  c.qk_norm = c.qk_norm_after_rotation = true;
  c.rms_norm_eps = 1e-5;
  c.tie_word_embeddings = true;
  c.rope_theta = 1e4 * std::pow(1000.0, 128.0 / 126.0);
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 8;
  derive_a13b(c);
  return c;
}

ModelConfig hy3() {
  ModelConfig c = sized(grouped_base(), {120832, 4096, 80, 13312, 64, 8, 131072, 128});
  c.qk_norm = true;
  c.first_k_dense_replace = 1;
  c.rms_norm_eps = 1e-5;
  c.initializer_range = 0.006;
  c.rope_theta = 11158840;
  give_experts(c, {.experts = 192, .chosen = 8, .width = 1536, .shared = 1});
  c.sigmoid_scores = c.topk_bias = true;
  c.routed_scaling_factor = 2.826;
  return c;
}

}  // namespace

Family hunyuan_moe() {
  Family f = grouped_family("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", 1e-5);
  f.base.qk_norm = f.base.qk_norm_after_rotation = true;
  f.base.n_shared_experts = 1;
  require_keys(f, {"head_dim", "num_key_value_heads"});
  f.keys.push_back(own_attention_bias_key());
  f.keys.push_back(key("num_experts", "n_routed_experts"));
  f.keys.push_back(key("moe_topk", "num_experts_per_tok"));
  f.said = {"moe_intermediate_size", "first_k_dense_replace", "n_shared_experts", "norm_topk_prob"};
  f.only = {is("use_qk_norm", true, "queries and keys are normed"),
            off("use_cla", "attention shared by layers is not built"),
            is("norm_topk_prob", true, "gates sum to one"),
            is("use_mixed_mlp_moe", true, "a shared expert stands beside the others"),
            is("num_shared_expert", 1, "one shared expert is built"),
            is("moe_layer_num_skipped", 0, "every layer has experts"),
            off("group_limited_greedy", "a choice within groups of experts is not built"),
            off("moe_drop_tokens", "experts drop no tokens"),
            is("routed_scaling_factor", 1, "gates are not scaled"),
            {"moe_intermediate_size",
             [](const Json& v, const Json& root) { return v == root.value("intermediate_size", Json()); },
             "experts are as wide as 'intermediate_size'"}};
  f.read_besides = {"num_local_experts",
                    "num_experts_per_tok",
                    "attention_head_dim",
                    "output_router_logits",
                    "router_aux_loss_coef",
                    "cla_share_factor",
                    "moe_random_routing_dropped_token",
                    "n_group",
                    "topk_group",
                    "eod_token_id",
                    "im_start_id",
                    "org_vocab_size"};
  f.rewrite = rewrite_a13b;
  f.adopt = adopt_router_loss;
  f.derive = derive_a13b;
  f.holds = [](const ModelConfig& c) {
    return follows(c, derive_a13b) && !c.is_latent() && c.qk_norm && c.qk_norm_after_rotation &&
           !c.sigmoid_scores && c.norm_topk_prob;
  };
  f.spelt = spelt_a13b;
  f.presets = {{"hunyuan-a13b", a13b()}};
  return f;
}

Family hunyuan_dense() {
  Family f = grouped_family("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", 1e-5);
  f.base.qk_norm = f.base.qk_norm_after_rotation = true;
  f.keys.push_back(own_attention_bias_key());
  f.only = {is("use_qk_norm", true, "queries and keys are normed"),
            off("use_cla", "attention shared by layers is not built")};
  f.read_besides = {"attention_head_dim", "cla_share_factor", "eod_token_id", "im_start_id", "org_vocab_size"};
  f.rewrite = [](Json& root, const std::string& place) {
    join_names(root, place, {{"attention_head_dim", "head_dim"}});
    stretch_base(root, place);
  };
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) {
    return !c.is_latent() && !c.has_experts() && c.qk_norm && c.qk_norm_after_rotation && !c.qk_norm_all_heads;
  };
  f.spelt = spelt_a13b;
  return f;
}

Family hy_v3() {
  Family f = grouped_family("HYV3ForCausalLM", "hy_v3", 1e-5);
  f.base.qk_norm = f.base.sigmoid_scores = f.base.topk_bias = true;
  f.base.rope_theta = 11158840;
  replace_keys(f, {key("initializer_range", "initializer_range", 0.006)});
  add_keys(f, {
                  attention_bias_key(model::AttentionBias::all),
                  mlp_layer_types_key(1),
                  key("num_experts", "n_routed_experts", 192),
                  key("num_experts_per_tok", "num_experts_per_tok", 8),
                  key("num_shared_experts", "n_shared_experts", 1),
                  key("moe_intermediate_size", "moe_intermediate_size", 1536),
                  key("router_scaling_factor", "routed_scaling_factor", 2.826),
              });
  f.only = {is("qk_norm", true, "queries and keys are normed"),
            is("moe_router_use_sigmoid", true, "scores are sigmoids"),
            is("moe_router_enable_expert_bias", true, "the choice has a bias"),
            is("route_norm", true, "gates sum to one before scaling")};
  f.read_besides = {"num_local_experts", "first_k_dense_replace", "output_router_logits", "enable_moe_fp32_combine",
                    "num_nextn_predict_layers"};
  f.rewrite = name_num_experts;
  f.adopt = adopt_router_loss;
  f.holds = [](const ModelConfig&) { return false; };  // it is written as dots.llm1
  f.spelt = [](std::string name) {
    return respelt(std::move(name), {{".mlp.gate.weight", ".mlp.router.gate.weight"},
                                     {".mlp.gate.e_score_correction_bias", ".mlp.expert_bias"},
                                     {".mlp.shared_experts.", ".mlp.shared_mlp."}});
  };
  f.presets = {{"hy3", hy3()}};
  return f;
}

}  // namespace heddle::config
