// GLM-4, dense: LLaMA with biases on queries, keys and values, and heads of which the first half has positions, in
// pairs of neighbours. Since GLM-4-0414 ("glm4") norms stand before and after attention and MLP. Its files join
// gate and up.
//
// Sources: GlmConfig, Glm4Config and their models of Transformers 5, gone through key by key; the config.json files
// of glm-4-9b-chat-hf, GLM-4-9B-0414 and GLM-4-32B-0414.
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::ModelConfig;
using model::NormPlaces;

bool holds_glm(const ModelConfig& c, NormPlaces places) {
  return !c.is_latent() && !c.has_experts() && !c.recurs() && !c.qk_norm && c.rope_interleave && c.turns() &&
         c.attention_bias != AttentionBias::all && !c.mlp_bias && !c.zero_centered_norms &&
         c.norm == model::Norm::rms && c.norm_places == places &&
         (c.partial_rotary_factor < 1 || c.attention_bias == AttentionBias::qkv || places == NormPlaces::both);
}

std::optional<ReleasedPlace> stacked_glm(const std::string& name, const std::vector<int64_t>& shape,
                                         int64_t experts, const JoinedRows&) {
  if (experts > 0 || shape.size() != 2) return std::nullopt;
  const bool up = name.ends_with(".mlp.up_proj.weight");
  if (!up && !name.ends_with(".mlp.gate_proj.weight")) return std::nullopt;
  return ReleasedPlace{
      .name = respelt(name, {{".mlp.gate_proj.", ".mlp.gate_up_proj."}, {".mlp.up_proj.", ".mlp.gate_up_proj."}}),
      .shape = {2 * shape[0], shape[1]},
      .first = up ? shape[0] * shape[1] : 0,
      .row_step = shape[1],
      .is_whole = false};
}

std::string spelt_glm4(std::string name) {
  return respelt(std::move(name), {{".post_attention_layernorm.", ".post_self_attn_layernorm."},
                                   {".pre_feedforward_layernorm.", ".post_attention_layernorm."},
                                   {".post_feedforward_layernorm.", ".post_mlp_layernorm."}});
}

ModelConfig base_glm(NormPlaces places) {
  ModelConfig c = grouped_base();
  c.rope_interleave = true;
  c.norm_places = places;
  return c;
}

ModelConfig sized_glm(NormPlaces places, const GroupedSizes& sizes, double epsilon) {
  ModelConfig c = sized(base_glm(places), sizes);
  make_dense(c);
  c.rms_norm_eps = epsilon;
  c.partial_rotary_factor = 0.5;
  return c;
}

ModelConfig with_biases_glm(ModelConfig c) {
  c.attention_bias = AttentionBias::qkv;
  return c;
}

Family common_glm(const char* architecture, const char* model_type, NormPlaces places) {
  Family f = grouped_family(architecture, model_type, 1.5625e-7, base_glm(places));
  replace_keys(f, {key("head_dim", "head_dim", 128), key("num_key_value_heads", "num_key_value_heads", 2)});
  f.keys.push_back(partial_rotary_key(0.5));
  f.keys.push_back(attention_bias_key(AttentionBias::qkv, true));
  f.derive = make_dense;
  f.stacked = stacked_glm;
  return f;
}

}  // namespace

Family glm() {
  Family f = common_glm("GlmForCausalLM", "glm", NormPlaces::before);
  f.holds = [](const ModelConfig& c) { return holds_glm(c, NormPlaces::before); };
  f.presets = {
      {"glm-4-9b-chat",
       with_biases_glm(sized_glm(NormPlaces::before, {151552, 4096, 40, 13696, 32, 2, 131072, 128}, 1.5625e-7))}};
  return f;
}

Family glm4() {
  Family f = common_glm("Glm4ForCausalLM", "glm4", NormPlaces::both);
  f.holds = [](const ModelConfig& c) { return holds_glm(c, NormPlaces::both); };
  f.spelt = spelt_glm4;
  f.renames = [](std::string_view name) { return name.ends_with(".post_attention_layernorm.weight"); };
  f.presets = {{"glm-4-9b-0414",
                with_biases_glm(sized_glm(NormPlaces::both, {151552, 4096, 40, 13696, 32, 2, 32768, 128}, 1e-5))},
               {"glm-4-32b-0414", sized_glm(NormPlaces::both, {151552, 6144, 61, 23040, 48, 2, 32768, 128}, 1e-5)}};
  return f;
}

}  // namespace heddle::config
