// Dense models of which every n-th layer turns no queries and keys. SmolLM3 is LLaMA but for these. EXAONE 4 norms
// queries and keys head by head, and the outputs of attention and MLP; its larger models have windows in all other
// layers.
//
// Sources: SmolLM3Config, Exaone4Config and their models of Transformers 5, gone through key by key; arXiv
// 2507.11407; the config.json files released with SmolLM3-3B and EXAONE-4.0-32B.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/turning_layers.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

constexpr int64_t kInterval = 4;

bool is_dense(const ModelConfig& c) { return !c.is_latent() && !c.has_experts() && c.turns(); }

ModelConfig smollm3_3b() {
  ModelConfig c = sized(grouped_base(), {128256, 2048, 36, 11008, 16, 4, 65536, 128});
  make_dense(c);
  c.tie_word_embeddings = true;
  c.rope_theta = 5e6;
  c.no_rope_layer_interval = kInterval;
  return c;
}

ModelConfig exaone_base() {
  ModelConfig c = grouped_base();
  c.qk_norm = true;
  c.norm_places = model::NormPlaces::after;
  return c;
}

ModelConfig exaone_32b() {
  ModelConfig c = sized(exaone_base(), {102400, 5120, 64, 27392, 40, 8, 131072, 128});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 1e6;
  c.rope_scaling =
      model::RopeScaling{.factor = 16, .original_max_position_embeddings = 8192, .type = model::RopeType::llama3};
  c.sliding_window = 4096;
  c.full_attention_interval = c.no_rope_layer_interval = 4;
  return c;
}

// "LLLG" stands for its length: the last of so many layers has no window.
void number_pattern(Json& root, const std::string& place) {
  const Json pattern = root.value("sliding_window_pattern", Json());
  if (!pattern.is_string()) return;
  const std::string letters = pattern.get<std::string>();
  if (letters.empty() || letters.find_first_not_of('L') != letters.size() - 1 || letters.back() != 'G') {
    config_error("{}: 'sliding_window_pattern' is {}: letters L with one G behind them are expected", place,
                 formats::shown(pattern));
  }
  root["sliding_window_pattern"] = std::ssize(letters);
}

// With windows, the layers without one turn nothing.
int64_t unturned(const ModelConfig& c) { return c.sliding_window > 0 ? c.full_attention_interval : 0; }

void derive_exaone(ModelConfig& c) {
  make_dense(c);
  c.no_rope_layer_interval = unturned(c);
}

// Layers without a window that are not every n-th turn nothing either.
void refuse_first_layers(const JsonKeys& keys, const ModelConfig& c) {
  if (c.sliding_window == 0 ||
      (c.max_window_layers == 0 && c.full_attention_offset == 0 && c.layer_pattern.empty())) {
    return;
  }
  config_error("{}: 'layer_types' leave a window out in other layers than every n-th from the first on: not built",
               keys.place());
}

}  // namespace

Family smollm3() {
  Family f = grouped_family("SmolLM3ForCausalLM", "smollm3", 1e-6);
  f.base.rope_theta = 2e6;
  replace_keys(f, {key("tie_word_embeddings", "tie_word_embeddings", true)});
  f.keys.push_back(attention_bias_key(model::AttentionBias::all));
  f.keys.push_back(key("mlp_bias", "mlp_bias", false));
  f.keys.push_back(no_rope_layers_key(kInterval));
  f.read_besides = {"no_rope_layer_interval"};
  f.said = {"rotation_pattern"};
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) {
    return is_dense(c) && !c.qk_norm && (c.no_rope_layer_interval > 0 || !c.rotation_pattern.empty()) &&
           c.sliding_window == 0 && c.attention_bias != model::AttentionBias::qkv;
  };
  f.presets = {{"smollm3-3b", smollm3_3b()}};
  return f;
}

Family exaone4() {
  Family f = grouped_family("Exaone4ForCausalLM", "exaone4", 1e-5, exaone_base());
  for (PublishedKey& each : window_of_all_but_every_nth(4096, "sliding_window_pattern", 4)) {
    if (each.name == "sliding_window") {
      each.read = [read = each.read](const JsonKeys& keys, ModelConfig& c) {
        read(keys, c);
        refuse_first_layers(keys, c);
      };
    }
    f.keys.push_back(std::move(each));
  }
  f.said = {"no_rope_layer_interval"};
  f.rewrite = number_pattern;
  f.derive = derive_exaone;
  f.holds = [](const ModelConfig& c) {
    return is_dense(c) && c.qk_norm && !c.qk_norm_all_heads && c.norm_places == model::NormPlaces::after &&
           c.no_rope_layer_interval == unturned(c) && c.max_window_layers == 0 && c.full_attention_offset == 0;
  };
  f.presets = {{"exaone-4.0-32b", exaone_32b()}};
  return f;
}

}  // namespace heddle::config
