// Mistral 7B: LLaMA without biases, all of whose layers may have a window. And CWM, all of whose layers but every
// fourth, from the first on, have one.
//
// Sources: MistralConfig and CwmConfig of Transformers 5, gone through key by key; arXiv 2310.06825, table 1, and
// 2510.02387; the config.json files released with Mistral-7B-v0.1 and v0.3.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

// The first version; the later ones have no window and are LLaMA's.
ModelConfig seven_billion() {
  ModelConfig c = sized(grouped_base(), {32000, 4096, 32, 14336, 32, 8, 32768});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.sliding_window = 4096;
  return c;
}

bool is_plain_mistral(const ModelConfig& c) {
  return c.sliding_window > 0 && !c.is_latent() && !c.has_experts() && !c.qk_norm && !c.mlp_bias &&
         c.attention_bias == model::AttentionBias::none;
}

bool holds_mistral(const ModelConfig& c) {
  return is_plain_mistral(c) && c.max_window_layers == 0 && c.full_attention_interval == 0;
}

ModelConfig code_world_model() {
  ModelConfig c = sized(grouped_base(), {128256, 6144, 64, 21504, 48, 8, 131072});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e6;
  c.rope_scaling =
      model::RopeScaling{.factor = 16, .original_max_position_embeddings = 8192, .type = model::RopeType::llama3};
  c.sliding_window = 8192;
  c.full_attention_interval = 4;
  c.full_attention_offset = 1;
  return c;
}

// The rotation of a file that says nothing of it.
void complete_rotation(Json& root, const std::string&) {
  for (const char* name : {"rope_parameters", "rope_scaling", "rope_theta"})
    if (!root.value(name, Json()).is_null()) return;
  root["rope_parameters"] = {{"rope_type", "llama3"},   {"rope_theta", 1e6},
                             {"factor", 16.0},          {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
}

}  // namespace

Family mistral() {
  Family f = grouped_family("MistralForCausalLM", "mistral", 1e-6);
  f.keys.push_back(window_of_all_layers(4096));
  f.holds = holds_mistral;
  f.derive = make_dense;
  f.presets = {{"mistral-7b", seven_billion()}};
  return f;
}

Family cwm() {
  Family f = grouped_family("CwmForCausalLM", "cwm", 1e-5);
  f.base.rope_theta = 1e6;
  add_keys(f, window_of_all_but_every_nth(8192, "", 4, 0, 1));
  f.rewrite = complete_rotation;
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) { return is_plain_mistral(c) && c.window_rope_theta == 0; };
  f.presets = {{"cwm-32b", code_world_model()}};
  return f;
}

}  // namespace heddle::config
