// Mistral 7B: LLaMA without biases, all of whose layers may have a window.
//
// Sources: MistralConfig of Transformers 5, gone through key by key; arXiv 2310.06825, table 1; the config.json
// files released with Mistral-7B-v0.1 and v0.3.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/window_keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

// The first version; the later ones have no window and are LLaMA's.
ModelConfig seven_billion() {
  ModelConfig c = grouped_base();
  c.vocab_size = 32000;
  c.hidden_size = 4096;
  c.num_hidden_layers = c.first_k_dense_replace = 32;
  c.intermediate_size = 14336;
  c.num_attention_heads = 32;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 32768;
  c.sliding_window = 4096;
  return c;
}

bool holds(const ModelConfig& c) {
  const bool windows = c.sliding_window > 0 && c.max_window_layers == 0 && c.full_attention_interval == 0;
  return windows && !c.is_latent() && !c.has_experts() && !c.qk_norm && !c.mlp_bias &&
         c.attention_bias == model::AttentionBias::none;
}

}  // namespace

Family mistral() {
  Family f;
  f.architecture = "MistralForCausalLM";
  f.model_type = "mistral";
  f.base = grouped_base();
  f.keys = grouped_keys(1e-6);
  for (PublishedKey& each : f.keys) {  // Transformers has a default of its own: it must be there
    if (each.name == "num_key_value_heads") each = key("num_key_value_heads");
  }
  f.keys.push_back(window_of_all_layers(4096));
  f.holds = holds;
  f.derive = make_dense;
  f.presets = {{"mistral-7b", seven_billion()}};
  return f;
}

}  // namespace heddle::config
