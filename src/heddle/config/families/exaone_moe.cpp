// K-EXAONE: Qwen3's attention, of whose layers three of four have a window and positions, and the others neither;
// DeepSeek-V3's router and shared experts. Layers of further tokens in its folders ("mtp.") are dense, and skipped.
//
// Sources: ExaoneMoeConfig and modeling_exaone_moe.py of Transformers 5, gone through key by key; arXiv 2601.01739.
// Sizes are those of the config.json file released with K-EXAONE-236B-A23B, by TensorRT-LLM's test of it.
#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/turned_windows.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

// "LLLG" stands for its length: the last of so many layers has no window.
void rewrite_exaone_moe(Json& root, const std::string& place) {
  name_num_experts(root, place);
  name_mlp_layers(root);
  const Json pattern = root.value("sliding_window_pattern", Json());
  if (!pattern.is_string()) return;
  const std::string letters = pattern.get<std::string>();
  if (letters.empty() || letters.find_first_not_of('L') != letters.size() - 1 || letters.back() != 'G') {
    config_error("{}: 'sliding_window_pattern' is {}: letters L with one G behind them are expected", place,
                 formats::shown(pattern));
  }
  root["sliding_window_pattern"] = std::ssize(letters);
}

void adopt_exaone_moe(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  adopt_router_loss(root, place, warnings);
  skip_prediction_layers(root, place, {"num_nextn_predict_layers"}, warnings);
}

// Says the same as "mlp_layer_types", by true where a layer has experts.
bool repeats_words_exaone_moe(const Json& list, const Json& root) {
  const Json words = root.value("mlp_layer_types", Json());
  if (!list.is_array() || !words.is_array() || list.size() != words.size()) return false;
  for (size_t l = 0; l < list.size(); ++l)
    if ((list[l] == true) != (words[l] == "sparse")) return false;
  return true;
}

bool holds_exaone_moe(const ModelConfig& c) {
  return !c.is_latent() && c.has_experts() && c.qk_norm && !c.qk_norm_all_heads && c.sigmoid_scores &&
         c.topk_bias && !c.bias_on_logits && c.norm_places == model::NormPlaces::before &&
         c.attention_gate == model::AttentionGate::none && c.attention_bias == model::AttentionBias::none &&
         c.partial_rotary_factor == 1 && c.sliding_window > 0 && c.window_rope_theta == 0 && turns_in_windows(c) &&
         c.num_nextn_predict_layers == 0;
}

ModelConfig base_exaone_moe() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = true;
  return c;
}

ModelConfig k_exaone() {
  ModelConfig c = sized(base_exaone_moe(), {153600, 6144, 48, 18432, 64, 8, 262144, 128});
  c.first_k_dense_replace = 1;
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e6;
  c.sliding_window = 128;
  c.full_attention_interval = 4;
  turn_in_windows(c);
  give_experts(c, {.experts = 128, .chosen = 8, .width = 2048, .shared = 1});
  c.routed_scaling_factor = 2.5;
  return c;
}

}  // namespace

Family exaone_moe() {
  Family f = grouped_family("ExaoneMoeForCausalLM", "exaone_moe", 1e-5, base_exaone_moe());
  f.also_architecture = "ExaoneMoEForCausalLM";
  add_keys(f, turned_windows(4096, "sliding_window_pattern", 4));
  add_keys(f, {
                  mlp_layer_types_key(1),
                  key("num_experts", "n_routed_experts", 64),
                  key("num_experts_per_tok", "num_experts_per_tok", 8),
                  key("num_shared_experts", "n_shared_experts", 1),
                  key("moe_intermediate_size", "moe_intermediate_size", 1024),
                  key("n_group", "n_group", 1),
                  key("topk_group", "topk_group", 1),
                  key("norm_topk_prob", "norm_topk_prob", true),
                  key("routed_scaling_factor", "routed_scaling_factor", 2.5),
              });
  f.said = {"no_rope_layer_interval"};
  f.only = {is("scoring_func", "sigmoid", "scores are sigmoids"),
            is("topk_method", "noaux_tc", "only 'noaux_tc' is built"),
            {"is_moe_layer", repeats_words_exaone_moe, "it says something else than 'mlp_layer_types'"}};
  f.read_besides = {"num_local_experts", "first_k_dense_replace", "output_router_logits",
                    "num_nextn_predict_layers"};
  f.rewrite = rewrite_exaone_moe;
  f.adopt = adopt_exaone_moe;
  f.holds = holds_exaone_moe;
  f.spelt = [](std::string name) {
    return respelt(std::move(name), {{".mlp.gate.e_score_correction_bias", ".mlp.e_score_correction_bias"}});
  };
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("mtp."); };
  f.presets = {{"k-exaone-236b-a23b", k_exaone()}};
  return f;
}

}  // namespace heddle::config
