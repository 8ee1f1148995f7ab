// AFMoE (Arcee's Trinity): norms before and after attention and MLP, a gate an element by a map of its own, and
// positions in the layers with a window alone. Experts are chosen by sigmoids with a bias on the choice.
//
// Sources: AfmoeConfig and modeling_afmoe.py of Transformers 5, gone through key by key; arXiv 2602.17004; the
// config.json files released with Trinity-Nano-Preview and Trinity-Mini.
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/turned_windows.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::AttentionGate;
using model::ModelConfig;

double scale_of_width(const ModelConfig& c) { return std::sqrt(static_cast<double>(c.hidden_size)); }

// Transformers makes a mask of it, whether a layer has it or not.
void rewrite_afmoe(Json& root, const std::string& place) {
  name_num_experts(root, place);
  const auto window = root.find("sliding_window");
  if (window != root.end() && (window->is_null() || *window == 0))
    config_error("{}: 'sliding_window' is {}, accepted: a number of tokens above 0", place,
                 formats::shown(*window));
}

void derive_afmoe(ModelConfig& c) {
  if (c.embedding_multiplier != 1) c.embedding_multiplier = scale_of_width(c);
}

PublishedKey scaled_embedding() {
  return {.name = "mup_enabled",
          .ours = "embedding_multiplier",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.embedding_multiplier = keys.boolean("mup_enabled", false) ? scale_of_width(c) : 1;
              },
          .write = [](const ModelConfig& c) { return nlohmann::ordered_json(c.embedding_multiplier != 1); }};
}

bool holds_afmoe(const ModelConfig& c) {
  return !c.is_latent() && c.has_experts() && c.qk_norm && !c.qk_norm_all_heads && !c.zero_centered_norms &&
         c.norm_places == model::NormPlaces::both && c.attention_gate == AttentionGate::element_apart &&
         !c.attention_gate_softplus && c.attention_bias != AttentionBias::qkv && c.sigmoid_scores && c.topk_bias &&
         !c.bias_on_logits && c.norm_topk_prob && c.n_group == 1 && c.num_nextn_predict_layers == 0 &&
         (c.embedding_multiplier == 1 || c.embedding_multiplier == scale_of_width(c)) && c.sliding_window > 0 &&
         turns_in_windows(c);
}

std::string spelt_afmoe(std::string name) {
  return respelt(std::move(name), {{".mlp.gate.weight", ".mlp.router.gate.weight"},
                                   {".mlp.gate.e_score_correction_bias", ".mlp.expert_bias"},
                                   {".self_attn.g_proj.", ".self_attn.gate_proj."},
                                   {".pre_feedforward_layernorm.", ".pre_mlp_layernorm."},
                                   {".post_feedforward_layernorm.", ".post_mlp_layernorm."}});
}

ModelConfig base_afmoe() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = true;
  c.norm_places = model::NormPlaces::both;
  c.attention_gate = AttentionGate::element_apart;
  return c;
}

struct SizesAfmoe {
  int64_t dense, window;
  double scale;
};

ModelConfig sized_afmoe(const GroupedSizes& sizes, const SizesAfmoe& more, const ExpertSizes& experts) {
  ModelConfig c = sized(base_afmoe(), sizes);
  c.first_k_dense_replace = more.dense;
  c.rms_norm_eps = 1e-5;
  c.embedding_multiplier = scale_of_width(c);
  c.sliding_window = more.window;
  c.full_attention_interval = 4;
  turn_in_windows(c);
  give_experts(c, experts);
  c.routed_scaling_factor = more.scale;
  return c;
}

}  // namespace

Family afmoe() {
  Family f = grouped_family("AfmoeForCausalLM", "afmoe", 1e-5, base_afmoe());
  replace_keys(f, {key("head_dim", "head_dim", 128)});
  add_keys(f, turned_windows(1024, "global_attn_every_n_layers", 4));
  add_keys(f, {
                  attention_bias_key(AttentionBias::all),
                  scaled_embedding(),
                  key("num_dense_layers", "first_k_dense_replace", 1, 0),
                  key("num_experts", "n_routed_experts", 64),
                  key("num_experts_per_tok", "num_experts_per_tok", 6),
                  key("num_shared_experts", "n_shared_experts", 2, 0),
                  key("moe_intermediate_size", "moe_intermediate_size", 1408),
                  key("route_scale", "routed_scaling_factor", 1.0, 1.0),
              });
  f.said = {"no_rope_layer_interval", "norm_topk_prob", "n_group", "topk_group"};
  f.only = {is("n_group", 1, "a choice within groups of experts is not built"),
            is("topk_group", 1, "a choice within groups of experts is not built"),
            is("num_expert_groups", 1, "a choice within groups of experts is not built"),
            is("num_limited_groups", 1, "a choice within groups of experts is not built"),
            is("route_norm", true, "gates sum to one before scaling"),
            is("score_func", "sigmoid", "scores are sigmoids")};
  f.read_besides = {"num_local_experts", "output_router_logits", "load_balance_coeff", "use_grouped_mm"};
  f.rewrite = rewrite_afmoe;
  f.adopt = adopt_router_loss;
  f.derive = derive_afmoe;
  f.holds = holds_afmoe;
  f.spelt = spelt_afmoe;
  f.presets = {{"trinity-nano", sized_afmoe({200192, 1024, 56, 3072, 8, 2, 131072, 128}, {2, 2048, 2.826},
                                            {.experts = 128, .chosen = 8, .width = 256, .shared = 1})},
               {"trinity-mini", sized_afmoe({200192, 2048, 32, 6144, 32, 4, 131072, 128}, {2, 2048, 2.826},
                                            {.experts = 128, .chosen = 8, .width = 1024, .shared = 1})}};
  return f;
}

}  // namespace heddle::config
