// Ling 2.0 and Ring 2.0: grouped attention with normed queries and keys that are turned in part, DeepSeek-V3's
// router and shared experts. Queries, keys and values are one matrix in its files.
//
// Sources: modeling_bailing_moe_v2.py and the config.json files released with Ling-mini-2.0, Ling-flash-2.0 and
// Ling-1T (arXiv 2510.22115), gone through key by key.
#include <algorithm>
#include <array>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::ModelConfig;

// "rotary_dim", in place of the part of a head, or beside it where both say the same.
void rewrite_bailing_moe(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "num_experts"}});
  const Json width = root.value("rotary_dim", Json()), head = root.value("head_dim", Json());
  if (width.is_null()) return;
  if (!width.is_number_integer() || width <= 0)
    config_error("{}: 'rotary_dim' is {}, a whole number above 0 is expected", place, formats::shown(width));
  if (!head.is_number() || head <= 0) return;  // refused where it is read
  const double part = width.get<double>() / head.get<double>();
  Json& factor = root["partial_rotary_factor"];
  if (factor.is_null()) factor = part;
  if (factor != part) {
    config_error("{}: 'rotary_dim' is {} of {}, and 'partial_rotary_factor' is {}: they are one key", place,
                 formats::shown(width), formats::shown(head), formats::shown(factor));
  }
}

// One gate stays as it is; several sum to one.
void derive_bailing_moe(ModelConfig& c) { c.norm_topk_prob = c.num_experts_per_tok > 1; }

// Returns true if neither dots.llm1 nor GLM-4.5 is meant: it has groups of experts, and parts of heads without
// positions.
bool holds_bailing_moe(const ModelConfig& c) {
  return follows(c, derive_bailing_moe) && !c.is_latent() && c.has_experts() && c.qk_norm && !c.qk_norm_all_heads &&
         c.sigmoid_scores && c.topk_bias && c.attention_bias != AttentionBias::all && c.partial_rotary_factor < 1 &&
         c.n_group > 1 && c.nextn_blocks.empty();
}

std::string spelt_bailing_moe(std::string name) {
  return respelt(std::move(name), {{"model.embed_tokens.", "model.word_embeddings."},
                                   {".self_attn.q_norm.", ".attention.query_layernorm."},
                                   {".self_attn.k_norm.", ".attention.key_layernorm."},
                                   {".self_attn.o_proj.", ".attention.dense."},
                                   {".shared_head.norm.", ".final_layernorm."},
                                   {".mlp.gate.e_score_correction_bias", ".mlp.gate.expert_bias"}});
}

// Rows of queries, of keys and of values.
std::optional<ReleasedPlace> stacked_bailing_moe(const std::string& name, const std::vector<int64_t>& shape,
                                                 int64_t, const JoinedRows& joined) {
  constexpr std::array<std::string_view, 3> kParts{".self_attn.q_proj.", ".self_attn.k_proj.",
                                                   ".self_attn.v_proj."};
  for (const std::string_view part : kParts) {
    const size_t at = name.find(part);
    if (at == std::string::npos || shape.empty()) continue;
    const int64_t columns = shape.size() > 1 ? shape[1] : 1;
    ReleasedPlace place{.name = name,
                        .shape = shape,
                        .first = joined.first * columns,
                        .row_step = shape.size() > 1 ? columns : shape[0],
                        .is_whole = false};
    place.name.replace(at, part.size(), ".attention.query_key_value.");
    place.shape[0] = joined.rows;
    return place;
  }
  return std::nullopt;
}

ModelConfig base_bailing_moe() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = true;
  c.rope_theta = 600000;
  return c;
}

ModelConfig sized_bailing_moe(int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads, int64_t width,
                              int64_t dense) {
  ModelConfig c = sized(base_bailing_moe(), {157184, hidden, layers, width, heads, kv_heads, 32768, 128});
  c.first_k_dense_replace = dense;
  c.partial_rotary_factor = 0.5;
  give_experts(c, {.experts = 256, .chosen = 8, .width = hidden / 4, .shared = 1});
  c.n_group = 8;
  c.topk_group = 4;
  c.routed_scaling_factor = 2.5;
  return c;
}

Family common_bailing_moe(const char* model_type) {
  Family f = grouped_family("BailingMoeV2ForCausalLM", model_type, 1e-6, base_bailing_moe());
  add_keys(f, {
                  attention_bias_key(AttentionBias::qkv, false, "use_qkv_bias"),
                  partial_rotary_key(1.0),
                  key("first_k_dense_replace", "first_k_dense_replace", 0),
                  key("num_experts", "n_routed_experts"),
                  key("num_experts_per_tok"),
                  key("num_shared_experts", "n_shared_experts", 0, 0),
                  key("moe_intermediate_size"),
                  key("n_group", "n_group", 8),
                  key("topk_group", "topk_group", 4),
                  key("routed_scaling_factor", "routed_scaling_factor", 1.0),
                  fixed("use_bias", false),
                  fixed("use_qk_norm", true),
                  fixed("norm_topk_prob", true),
                  fixed("score_function", "sigmoid"),
                  fixed("moe_router_enable_expert_bias", true),
                  key("num_nextn_predict_layers", "num_nextn_predict_layers", 0),
              });
  require_keys(f, {"head_dim", "num_key_value_heads"});
  f.said = {"norm_topk_prob"};
  f.only = {off("use_bias", "a bias of attention's output is not built"),
            is("use_qk_norm", true, "queries and keys are normed"),
            is("use_rmsnorm", true, "norms are root-mean-square norms"),
            is("norm_topk_prob", true, "gates sum to one before scaling"),
            is("score_function", "sigmoid", "scores are sigmoids"),
            is("moe_router_enable_expert_bias", true, "the choice has a bias"),
            off("embedding_dropout", "dropout is not built"),
            off("output_dropout", "dropout is not built"),
            {"moe_shared_expert_intermediate_size",
             [](const Json& v, const Json& root) { return v == root.value("moe_intermediate_size", Json()); },
             "shared experts are as wide as the others"}};
  f.read_besides = {"num_local_experts", "rotary_dim", "router_dtype", "mtp_loss_scaling_factor",
                    "output_router_logits"};
  f.rewrite = rewrite_bailing_moe;
  f.adopt = adopt_router_loss;
  f.complete = count_prediction_layers;
  f.derive = derive_bailing_moe;
  f.spelt = spelt_bailing_moe;
  f.stacked = stacked_bailing_moe;
  return f;
}

}  // namespace

Family bailing_moe() {
  Family f = common_bailing_moe("bailing_moe");
  f.holds = holds_bailing_moe;
  f.presets = {{"ling-mini-2.0", sized_bailing_moe(2048, 20, 16, 4, 5120, 1)},
               {"ling-flash-2.0", sized_bailing_moe(4096, 32, 32, 4, 9216, 1)},
               {"ling-1t", sized_bailing_moe(8192, 80, 64, 8, 18432, 4)}};
  return f;
}

Family bailing_moe_v2() {
  Family f = common_bailing_moe("bailing_moe_v2");
  f.holds = [](const ModelConfig&) { return false; };  // it is written as bailing_moe
  return f;
}

}  // namespace heddle::config
