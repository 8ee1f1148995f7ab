// Gemma 3's text models. Norms of 1 + w stand before and after attention and MLP, which has GeGLU. Embeddings are
// multiplied by √hidden, and scores have a factor of their own key. All layers but every sixth have a window and a
// rotary base of their own.
//
// Sources: Gemma3TextConfig and modeling_gemma3.py of Transformers 5, gone through key by key; arXiv 2503.19786;
// the config.json files released with gemma-3-270m and gemma-3-1b-pt.
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr double kLocalTheta = 1e4;

// Transformers turns the layers by default where rope_scaling has an old name of its type.
void refuse_old_scaling(const Json& root, const std::string& place) {
  const Json scaling = root.value("rope_scaling", Json());
  if (!scaling.is_object() || !scaling.value("rope_type", Json()).is_null()) return;
  if (const Json type = scaling.value("type", Json("default")); !type.is_null() && type != "default") {
    config_error("{}: 'rope_scaling.type' is {}: Gemma 3 reads 'rope_scaling.rope_type'", place,
                 formats::shown(type));
  }
}

// A window of no size leaves layers whose word or number says that they have one.
void refuse_no_window(const Json& root, const std::string& place) {
  const auto at = root.find("sliding_window");
  if (at == root.end() || !(at->is_null() || *at == 0) || !root.value("layer_types", Json()).is_null()) return;
  config_error("{}: 'sliding_window' is {}: it goes with 'layer_types' that are all 'full_attention'", place,
               formats::shown(*at));
}

void rewrite(Json& root, const std::string& place) {
  refuse_old_scaling(root, place);
  refuse_no_window(root, place);
  flatten_rotation_by_layer(root, place, "rope_local_base_freq");
  // Old files name the activation as others do.
  if (root.value("hidden_act", Json()) == "gelu_pytorch_tanh") root.erase("hidden_act");
}

void derive(ModelConfig& c) {
  make_dense(c);
  c.embedding_multiplier = std::sqrt(static_cast<double>(c.hidden_size));
  if (c.sliding_window == 0) c.window_rope_theta = 0;
}

// Scores are divided by the root of this.
PublishedKey score_scale() {
  return {.name = "query_pre_attn_scalar",
          .ours = "",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.attention_scale = 1 / std::sqrt(keys.positive("query_pre_attn_scalar", 256));
              },
          .write =
              [](const ModelConfig& c) {
                const double scalar = 1 / (c.softmax_scale() * c.softmax_scale()), whole = std::round(scalar);
                if (std::abs(scalar - whole) < 1e-9 * scalar) return Written(static_cast<int64_t>(whole));
                return Written(scalar);
              }};
}

PublishedKey logit_cap() {
  return {
      .name = "final_logit_softcapping",
      .ours = "final_logit_cap",
      .read = [](const JsonKeys& keys,
                 ModelConfig& c) { c.final_logit_cap = keys.number("final_logit_softcapping", 0.0); },
      .write = [](const ModelConfig& c) { return c.final_logit_cap > 0 ? Written(c.final_logit_cap) : Written(); }};
}

ModelConfig base() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.zero_centered_norms = true;
  c.norm_places = model::NormPlaces::both;
  c.activation = model::Activation::geglu_tanh;
  c.window_rope_theta = kLocalTheta;
  c.rope_theta = 1e6;
  return c;
}

ModelConfig sized(int64_t hidden, int64_t layers, int64_t mlp) {
  ModelConfig c = base();
  c.vocab_size = 262144;
  c.hidden_size = hidden;
  c.num_hidden_layers = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 1;
  c.head_dim = 256;
  c.attention_scale = 0.0625;
  c.tie_word_embeddings = true;
  c.max_position_embeddings = 32768;
  c.sliding_window = 512;
  c.full_attention_interval = 6;
  derive(c);
  return c;
}

bool holds(const ModelConfig& c) {
  return !c.is_latent() && !c.has_experts() && c.qk_norm && c.zero_centered_norms &&
         c.norm_places == model::NormPlaces::both && c.activation == model::Activation::geglu_tanh &&
         c.sliding_window > 0 && c.window_rope_theta > 0;
}

}  // namespace

Family gemma3() {
  Family f;
  f.architecture = "Gemma3ForCausalLM";
  f.model_type = "gemma3_text";
  f.base = base();
  f.keys = grouped_keys(1e-6);
  std::erase_if(f.keys, [](const PublishedKey& each) { return each.name == "hidden_act"; });
  for (PublishedKey& each : f.keys) {  // Transformers has defaults of its own for these: they must be there
    if (each.name == "head_dim" || each.name == "num_key_value_heads") each = key(each.name.c_str());
    if (each.name == "tie_word_embeddings") each = key("tie_word_embeddings", "tie_word_embeddings", true);
  }
  f.keys.push_back(fixed("hidden_activation", "gelu_pytorch_tanh"));
  f.keys.push_back(attention_bias_key(model::AttentionBias::all));
  f.keys.back().ours = "";
  f.keys.push_back(score_scale());
  f.keys.push_back(logit_cap());
  f.keys.push_back(key("rope_local_base_freq", "window_rope_theta", kLocalTheta));
  for (PublishedKey& each : window_of_all_but_every_nth(4096, "sliding_window_pattern", 6))
    f.keys.push_back(std::move(each));
  f.only = {is("hidden_activation", "gelu_pytorch_tanh", "only 'gelu_pytorch_tanh' is built"),
            above_zero("query_pre_attn_scalar"), above_zero("rope_local_base_freq"),
            above_zero("sliding_window_pattern"),
            off("use_bidirectional_attention", "attention in both directions is not built")};
  // Transformers writes its own copy of the pattern and reads layer_types.
  f.read_besides = {"hidden_act", "_sliding_window_pattern", "cache_implementation"};
  f.rewrite = rewrite;
  f.derive = derive;
  f.holds = holds;
  f.presets = {{"gemma-3-270m", sized(640, 18, 2048)}, {"gemma-3-1b", sized(1152, 26, 6912)}};
  return f;
}

}  // namespace heddle::config
