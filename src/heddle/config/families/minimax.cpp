// MiniMax-01 (arXiv 2501.08313): lightning attention in most layers, grouped attention in every so many-th. The
// residual stream goes on from its normed rows, times a factor of its own. Every layer has experts under Mixtral's
// names, chosen by a softmax.
//
// The first release has other names for the factors and a number a layer for its kind; Transformers has a word.
//
// Sources: MiniMaxConfig and modeling_minimax.py of Transformers 5, gone through key by key; the config.json files
// and the code released with MiniMax-Text-01.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::NormPlaces;
using model::Recurrence;

constexpr const char *kFullMiniMax = "full_attention", *kLinearMiniMax = "linear_attention";

// "rotary_dim" says in elements what others say as a part of the head. 0 and 1 are kinds of layers.
void rewrite_minimax(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_experts", "num_local_experts"},
              {"layernorm_full_attention_alpha", "full_attn_alpha_factor"},
              {"layernorm_full_attention_beta", "full_attn_beta_factor"},
              {"layernorm_linear_attention_alpha", "linear_attn_alpha_factor"},
              {"layernorm_linear_attention_beta", "linear_attn_beta_factor"},
              {"layernorm_mlp_alpha", "mlp_alpha_factor"},
              {"layernorm_mlp_beta", "mlp_beta_factor"}});
  const Json width = root.value("rotary_dim", Json()), head = root.value("head_dim", Json());
  if (!width.is_null() && !width.is_number_integer())
    config_error("{}: 'rotary_dim' is {}, a whole number is expected", place, formats::shown(width));
  const bool says_part =
      !root.value("partial_rotary_factor", Json()).is_null() || root.value("rope_parameters", Json()).is_object();
  if (!says_part && !width.is_null() && head.is_number() && head > 0)
    root["partial_rotary_factor"] = width.get<double>() / head.get<double>();
  const Json kinds = root.value("attn_type_list", Json());
  if (kinds.is_null() || !root.value("layer_types", Json()).is_null()) return;
  Json& words = root["layer_types"] = Json::array();
  for (const Json& kind : kinds.is_array() ? kinds : Json::array({Json()})) {
    if (kind != 0 && kind != 1)
      config_error("{}: 'attn_type_list' is {}: 0 or 1 for each layer is built", place, formats::shown(kinds));
    words.push_back(kind == 1 ? kFullMiniMax : kLinearMiniMax);
  }
}

void read_words(const JsonKeys& keys, ModelConfig& c) {
  set_layer_kinds(keys, attention_by_words(keys, c.num_hidden_layers), Recurrence::lightning, c);
}

// Its experts are what it has instead of a dense MLP, and the heads of its recurrence are those of attention.
void derive_minimax(ModelConfig& c) {
  only_experts(c);
  if (!c.recurs()) return model::reset_foreign_keys(c);
  c.linear_num_key_heads = c.linear_num_value_heads = c.num_attention_heads;
  c.linear_key_head_dim = c.linear_value_head_dim = c.head_dim;
}

bool holds_minimax(const ModelConfig& c) {
  return follows(c, derive_minimax) && !c.is_latent() && c.norm_places == NormPlaces::stream && !c.qk_norm &&
         !c.sigmoid_scores && c.norm_topk_prob && c.n_shared_experts == 0 &&
         (c.recurrence == Recurrence::lightning || c.recurrence == Recurrence::none);
}

// Transformers saves what it works out of the decays beside the weights.
bool passed_over_minimax(std::string_view name, const HasTensor&) {
  constexpr const char* kDecays[] = {"slope_rate", "query_decay", "key_decay", "diagonal_decay"};
  return std::any_of(std::begin(kDecays), std::end(kDecays),
                     [&](const char* decay) { return name.ends_with(std::string(".self_attn.") + decay); });
}

ModelConfig base_minimax() {
  ModelConfig c = grouped_base();
  c.norm_places = NormPlaces::stream;
  c.recurrence = Recurrence::lightning;
  c.rope_theta = 1e6;
  return c;
}

// The config.json released with MiniMax-Text-01. The factor is the fourth root of twice its 80 layers.
ModelConfig text_01() {
  ModelConfig c = sized(base_minimax(), {200064, 6144, 80, 9216, 64, 8, 10240000, 128});
  c.rms_norm_eps = 1e-5;
  c.partial_rotary_factor = 0.5;
  c.rope_theta = 1e7;
  c.full_attention_interval = 8;
  c.full_attn_alpha_factor = c.linear_attn_alpha_factor = c.mlp_alpha_factor = 3.5565588200778455;
  c.n_routed_experts = 32;
  c.num_experts_per_tok = 2;
  derive_minimax(c);
  return c;
}

}  // namespace

Family minimax() {
  Family f = grouped_family("MiniMaxForCausalLM", "minimax", 1e-5, base_minimax());
  add_keys(f, {
                  partial_rotary_key(1.0),
                  key("num_local_experts", "n_routed_experts", 8),
                  key("num_experts_per_tok", "num_experts_per_tok", 2),
                  {.name = "layer_types", .ours = "recurrence", .read = read_words, .write = words_of_layers},
                  key("full_attn_alpha_factor", "full_attn_alpha_factor", 1.0),
                  key("full_attn_beta_factor", "full_attn_beta_factor", 1.0),
                  key("linear_attn_alpha_factor", "linear_attn_alpha_factor", 1.0),
                  key("linear_attn_beta_factor", "linear_attn_beta_factor", 1.0),
                  key("mlp_alpha_factor", "mlp_alpha_factor", 1.0),
                  key("mlp_beta_factor", "mlp_beta_factor", 1.0),
              });
  add_keys(f, layer_kind_keys());
  f.said = {"moe_intermediate_size",  "first_k_dense_replace", "norm_topk_prob",       "linear_num_key_heads",
            "linear_num_value_heads", "linear_key_head_dim",   "linear_value_head_dim"};
  f.only = {is("postnorm", true, "the residual stream goes on from its normed rows"),
            off("shared_intermediate_size", "shared experts are not built")};
  f.read_besides = {"num_experts",
                    "rotary_dim",
                    "output_router_logits",
                    "router_aux_loss_coef",
                    "attn_type_list",
                    "block_size",
                    "shared_moe_mode",
                    "layernorm_full_attention_alpha",
                    "layernorm_full_attention_beta",
                    "layernorm_linear_attention_alpha",
                    "layernorm_linear_attention_beta",
                    "layernorm_mlp_alpha",
                    "layernorm_mlp_beta"};
  f.rewrite = rewrite_minimax;
  f.adopt = adopt_router_loss;
  f.derive = derive_minimax;
  f.holds = holds_minimax;
  f.spelt = spelt_block_sparse;
  f.passed_over = passed_over_minimax;
  f.presets = {{"minimax-01", text_01()}};
  return f;
}

// The first release, in code of its own: the same model.
Family minimax_text_01() {
  Family f = minimax();
  f.architecture = "MiniMaxText01ForCausalLM";
  f.model_type = "minimax_text_01";
  f.presets = {};
  f.holds = [](const ModelConfig&) { return false; };  // it is written as the other
  return f;
}

}  // namespace heddle::config
