// MiniMax-M2: grouped attention whose queries and keys are normed over all heads and turned in part. Every layer
// has experts under Mixtral's names, chosen by sigmoids with a bias on the choice.
//
// Sources: MiniMaxM2Config and modeling_minimax_m2.py of Transformers 5, gone through key by key; the config.json
// file released with MiniMax-M2.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

// "rotary_dim" says in elements what others say as a part of the head.
void rewrite_minimax_m2(Json& root, const std::string& place) {
  join_names(root, place, {{"num_experts", "num_local_experts"}});
  const Json width = root.value("rotary_dim", Json()), head = root.value("head_dim", Json());
  if (!width.is_null() && !width.is_number_integer())
    config_error("{}: 'rotary_dim' is {}, a whole number is expected", place, formats::shown(width));
  if (root.value("partial_rotary_factor", Json()).is_null() && !width.is_null() && head.is_number() && head > 0)
    root["partial_rotary_factor"] = width.get<double>() / head.get<double>();
}

bool holds_minimax_m2(const ModelConfig& c) {
  return follows(c, only_experts) && !c.is_latent() && c.qk_norm && c.qk_norm_all_heads && c.sigmoid_scores &&
         c.norm_topk_prob && c.n_shared_experts == 0 && c.norm_places == model::NormPlaces::before;
}

std::string spelt_minimax_m2(std::string name) {
  return respelt(spelt_block_sparse(std::move(name)),
                 {{".gate.e_score_correction_bias", ".e_score_correction_bias"}});
}

ModelConfig m2() {
  ModelConfig c = sized(grouped_base(), {200064, 3072, 62, 1536, 48, 8, 196608, 128});
  c.partial_rotary_factor = 0.5;
  c.qk_norm = c.qk_norm_all_heads = true;
  c.rope_theta = 5e6;
  c.n_routed_experts = 256;
  c.num_experts_per_tok = 8;
  c.sigmoid_scores = c.topk_bias = true;
  only_experts(c);
  return c;
}

}  // namespace

Family minimax_m2() {
  Family f = grouped_family("MiniMaxM2ForCausalLM", "minimax_m2", 1e-6);
  f.base.qk_norm = f.base.qk_norm_all_heads = f.base.sigmoid_scores = f.base.topk_bias = true;
  f.base.rope_theta = 5e6;
  f.keys.push_back(partial_rotary_key(1.0));
  f.keys.push_back(key("num_local_experts", "n_routed_experts", 256));
  f.keys.push_back(key("num_experts_per_tok", "num_experts_per_tok", 8));
  f.said = {"moe_intermediate_size", "first_k_dense_replace"};
  f.only = {is("use_qk_norm", true, "queries and keys are normed"),
            is("qk_norm_type", "per_layer", "queries and keys are normed over all heads"),
            is("scoring_func", "sigmoid", "scores are sigmoids"),
            is("use_routing_bias", true, "the choice has a bias"),
            off("shared_intermediate_size", "shared experts are not built"),
            {"attn_type_list",
             [](const Json& v, const Json& root) {
               return v.is_array() && v.size() == root.value("num_hidden_layers", Json()) &&
                      std::all_of(v.begin(), v.end(), [](const Json& t) { return t == 1; });
             },
             "attention in each layer is built, 1"}};
  f.read_besides = {"num_experts", "rotary_dim",      "output_router_logits",  "router_aux_loss_coef",
                    "use_mtp",     "num_mtp_modules", "mtp_transformer_layers"};
  f.rewrite = rewrite_minimax_m2;
  f.adopt = adopt_router_loss;
  f.derive = only_experts;
  f.holds = holds_minimax_m2;
  f.spelt = spelt_minimax_m2;
  f.presets = {{"minimax-m2", m2()}};
  return f;
}

}  // namespace heddle::config
