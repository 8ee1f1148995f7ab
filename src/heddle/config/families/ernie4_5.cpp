// ERNIE 4.5, dense and with experts: LLaMA with neighbouring elements turned; experts chosen by a softmax with a
// bias on the choice.
//
// Sources: Ernie4_5Config and Ernie4_5_MoeConfig of Transformers 5, gone through key by key; the config.json files
// released with ERNIE-4.5-0.3B-Base, ERNIE-4.5-21B-A3B-Base and ERNIE-4.5-300B-A47B-Base.
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

Family common_ernie4_5(const char* architecture, const char* model_type) {
  Family f = grouped_family(architecture, model_type, 1e-5);
  f.base.rope_interleave = true;
  f.base.rope_theta = 5e5;
  replace_keys(f, {key("tie_word_embeddings", "tie_word_embeddings", true)});
  f.keys.push_back(fixed("use_bias", false));
  f.only = {off("use_bias", "biases are not built")};
  f.read_besides = {"num_nextn_predict_layers"};  // Transformers passes over these layers
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("model.mtp_"); };
  return f;
}

ModelConfig sized_ernie4_5(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads,
                           bool tied) {
  ModelConfig c = sized(grouped_base(), {103424, hidden, layers, mlp, heads, kv_heads, 131072, 128});
  make_dense(c);
  c.rope_interleave = true;
  c.rms_norm_eps = 1e-5;
  c.tie_word_embeddings = tied;
  c.rope_theta = 5e5;
  return c;
}

ModelConfig mixture_ernie4_5(ModelConfig c, int64_t dense, int64_t chosen, int64_t shared, int64_t expert) {
  c.first_k_dense_replace = dense;
  give_experts(c, {.experts = 64, .chosen = chosen, .width = expert, .shared = shared});
  c.topk_bias = true;
  return c;
}

void rename_ernie4_5(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_experts", "moe_num_experts"},
              {"num_local_experts", "moe_num_experts"},
              {"num_experts_per_tok", "moe_k"}});
}

// Gates of a softmax never sum to less.
bool is_tiny(const Json& floor, const Json&) { return floor.is_number() && floor > 0 && floor <= 1e-6; }

std::string spelt_ernie4_5(std::string name) {
  return respelt(std::move(name),
                 {{".mlp.gate.e_score_correction_bias", ".mlp.moe_statics.e_score_correction_bias"}});
}

// The bias of the choice is a row of a matrix.
std::optional<ReleasedPlace> stacked_ernie4_5(const std::string& name, const std::vector<int64_t>& shape, int64_t,
                                              const JoinedRows&) {
  if (!name.ends_with(".mlp.gate.e_score_correction_bias") || shape.size() != 1) return std::nullopt;
  return ReleasedPlace{.name = spelt_ernie4_5(name), .shape = {1, shape[0]}, .row_step = shape[0]};
}

bool is_plain_ernie4_5(const ModelConfig& c) {
  return !c.is_latent() && !c.qk_norm && c.rope_interleave && c.attention_bias == model::AttentionBias::none &&
         c.attention_scale == 0;
}

}  // namespace

Family ernie4_5() {
  Family f = common_ernie4_5("Ernie4_5ForCausalLM", "ernie4_5");
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) { return is_plain_ernie4_5(c) && !c.has_experts() && !c.mlp_bias; };
  f.presets = {{"ernie-4.5-0.3b", sized_ernie4_5(1024, 18, 3072, 16, 2, true)}};
  return f;
}

Family ernie4_5_moe() {
  Family f = common_ernie4_5("Ernie4_5_MoeForCausalLM", "ernie4_5_moe");
  f.base.topk_bias = true;
  add_keys(f, {
                  key("moe_intermediate_size", "moe_intermediate_size", 1536),
                  key("moe_k", "num_experts_per_tok", 6),
                  key("moe_num_experts", "n_routed_experts", 64),
                  key("moe_num_shared_experts", "n_shared_experts", 2),
              });
  add_keys(f, moe_layer_interval_keys());
  f.said = {"norm_topk_prob"};
  f.only.push_back({"moe_norm_min", is_tiny, "another floor of the gates' sum is not built, accepted: up to 1e-6"});
  f.read_besides.insert(f.read_besides.end(), {"num_experts", "num_local_experts", "num_experts_per_tok",
                                               "output_router_logits", "router_aux_loss_coef"});
  f.rewrite = rename_ernie4_5;
  f.adopt = adopt_router_loss;
  f.holds = [](const ModelConfig& c) {
    return is_plain_ernie4_5(c) && c.has_experts() && !c.sigmoid_scores && c.topk_bias && c.norm_topk_prob;
  };
  f.spelt = spelt_ernie4_5;
  f.stacked = stacked_ernie4_5;
  f.presets = {
      {"ernie-4.5-21b-a3b", mixture_ernie4_5(sized_ernie4_5(2560, 28, 12288, 20, 4, true), 1, 6, 2, 1536)},
      {"ernie-4.5-300b-a47b", mixture_ernie4_5(sized_ernie4_5(8192, 54, 28672, 64, 8, false), 3, 8, 0, 3584)}};
  return f;
}

}  // namespace heddle::config
