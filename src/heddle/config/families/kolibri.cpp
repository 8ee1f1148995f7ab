// Kolibri (Aleph Alpha): norms before and after attention and experts, positions in the layers with a window alone,
// and experts in every layer, one of them shared. The bias of the choice is added to logits; gates are sigmoids.
//
// Sources: Kolibri1Config and modeling_kolibri1.py of Transformers 5, gone through key by key, whose defaults are
// the sizes of Kolibri-1.
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/turned_windows.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::NormPlaces;

// There is no dense layer, whose width would be another.
void derive_kolibri(ModelConfig& c) {
  c.intermediate_size = c.moe_intermediate_size;
  c.first_k_dense_replace = 0;
  c.n_shared_experts = 1;
}

bool holds_kolibri(const ModelConfig& c) {
  return follows(c, derive_kolibri) && !c.is_latent() && c.qk_norm && !c.qk_norm_all_heads &&
         !c.zero_centered_norms && c.norm_places == NormPlaces::both && c.sigmoid_scores && c.topk_bias &&
         c.bias_on_logits && c.shared_intermediate_size > 0 && !c.shared_expert_gate &&
         c.attention_gate == model::AttentionGate::none && c.attention_bias == model::AttentionBias::none &&
         c.routed_scaling_factor == 1 && turns_in_windows(c) && c.num_nextn_predict_layers == 0;
}

// The name here of the norm behind attention is that of the norm ahead of the experts in its files.
std::string spelt_kolibri(std::string name) {
  return respelt(std::move(name), {{".post_attention_layernorm.", ".post_attn_norm."},
                                   {".pre_feedforward_layernorm.", ".post_attention_layernorm."},
                                   {".post_feedforward_layernorm.", ".post_ffn_norm."},
                                   {".mlp.gate.e_score_correction_bias", ".moe.router.expert_bias"}});
}

ModelConfig base_kolibri() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = c.bias_on_logits = true;
  c.norm_places = NormPlaces::both;
  derive_kolibri(c);
  return c;
}

ModelConfig kolibri_78b() {
  ModelConfig c = sized(base_kolibri(), {128000, 2560, 50, 512, 48, 4, 262144, 128});
  c.sliding_window = 513;
  c.full_attention_interval = 5;
  turn_in_windows(c);
  give_experts(c, {.experts = 384, .chosen = 6, .width = 512});
  c.shared_intermediate_size = 512;
  c.norm_topk_prob = false;
  derive_kolibri(c);
  return c;
}

}  // namespace

Family kolibri1() {
  Family f = grouped_family("Kolibri1ForCausalLM", "kolibri1", 1e-6, base_kolibri());
  drop_keys(f, {"intermediate_size"});
  replace_keys(f, {key("head_dim", "head_dim", 128), key("num_key_value_heads", "num_key_value_heads", 4)});
  add_keys(f, turned_windows(513, "", 5));
  add_keys(f, {
                  unwritten_window_switch(),
                  key("num_experts", "n_routed_experts", 384),
                  key("num_experts_per_tok", "num_experts_per_tok", 6),
                  key("moe_intermediate_size", "moe_intermediate_size", 512),
                  key("shared_expert_intermediate_size", "shared_intermediate_size", 512),
                  key("norm_topk_prob", "norm_topk_prob", false),
              });
  f.said = {"no_rope_layer_interval",
            "intermediate_size",
            "first_k_dense_replace",
            "n_shared_experts",
            "bias_on_logits",
            "n_group",
            "topk_group"};
  f.only = {is("use_sliding_window", true, "'layer_types' say which layers have a window"),
            above_zero("shared_expert_intermediate_size"),
            {"intermediate_size",
             [](const Json& v, const Json& root) { return v == root.value("moe_intermediate_size", Json(512)); },
             "every layer has experts"}};
  f.read_besides = {"num_local_experts", "output_router_logits", "router_aux_loss_coef", "head_dtype"};
  f.rewrite = name_num_experts;
  f.adopt = adopt_router_loss;
  f.derive = derive_kolibri;
  f.holds = holds_kolibri;
  f.spelt = spelt_kolibri;
  f.renames = [](std::string_view name) { return name.ends_with(".post_attention_layernorm.weight"); };
  f.presets = {{"kolibri-1", kolibri_78b()}};
  return f;
}

}  // namespace heddle::config
