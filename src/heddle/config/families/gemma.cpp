// Gemma, Gemma 2 and Gemma 3's text models. All have norms of 1 + w, GeGLU, and embeddings multiplied by √hidden.
// Since Gemma 2 norms stand before and after attention and MLP, and scores have a factor of their own key. Gemma 2
// caps scores and logits, and every second layer has a window. Gemma 3 norms queries and keys, and all layers but
// every sixth have a window and a rotary base of their own.
//
// Sources: GemmaConfig, Gemma2Config, Gemma3TextConfig and their models in Transformers 5, gone through key by key;
// arXiv 2403.08295, 2408.00118 and 2503.19786; the config.json files released with gemma-2b, gemma-7b, gemma-2-2b,
// gemma-2-9b, gemma-2-27b, gemma-3-270m and gemma-3-1b-pt.
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
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

void rewrite_gemma(Json& root, const std::string& place) {
  refuse_old_scaling(root, place);
  refuse_no_window(root, place);
  flatten_rotation_by_layer(root, place, "rope_local_base_freq");
}

// Released files name only what differs from the smallest text model.
void take_text_gemma3(Json& root, const std::string& place) {
  take_text_config(root, place);
  for (const auto& [name, size] : {std::pair{"vocab_size", 262208},
                                   {"hidden_size", 2304},
                                   {"intermediate_size", 9216},
                                   {"num_hidden_layers", 26},
                                   {"num_attention_heads", 8}}) {
    if (root.value(name, Json()).is_null()) root[name] = size;
  }
  rewrite_gemma(root, place);
}

void rewrite_2(Json& root, const std::string& place) { refuse_no_window(root, place); }

// The first release says "gelu" and means the approximation, as Transformers reads it.
void rewrite_1(Json& root, const std::string&) {
  if (const Json act = root.value("hidden_act", Json()); act == "gelu") root["hidden_act"] = "gelu_pytorch_tanh";
}

void derive_gemma(ModelConfig& c) {
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

PublishedKey logit_cap(double standard) {
  return cap_key("final_logit_softcapping", "final_logit_cap", &ModelConfig::final_logit_cap, standard);
}

ModelConfig base_1() {
  ModelConfig c = grouped_base();
  c.zero_centered_norms = true;
  c.activation = model::Activation::geglu_tanh;
  return c;
}

ModelConfig base_2() {
  ModelConfig c = base_1();
  c.norm_places = model::NormPlaces::both;
  return c;
}

ModelConfig base_gemma() {
  ModelConfig c = base_2();
  c.qk_norm = true;
  c.window_rope_theta = kLocalTheta;
  c.rope_theta = 1e6;
  return c;
}

ModelConfig sized_gemma(int64_t hidden, int64_t layers, int64_t mlp) {
  ModelConfig c = sized(base_gemma(), {262144, hidden, layers, mlp, 4, 1, 32768, 256});
  c.attention_scale = 0.0625;
  c.tie_word_embeddings = true;
  c.sliding_window = 512;
  c.full_attention_interval = 6;
  derive_gemma(c);
  return c;
}

ModelConfig sized_1(ModelConfig c, int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads) {
  c = sized(std::move(c), {256000, hidden, layers, mlp, heads, kv_heads, 8192, 256});
  c.tie_word_embeddings = true;
  derive_gemma(c);
  return c;
}

ModelConfig sized_2(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads, int64_t head_dim,
                    double scalar) {
  ModelConfig c = sized_1(base_2(), hidden, layers, mlp, heads, kv_heads);
  c.head_dim = head_dim;
  c.attention_scale = 1 / std::sqrt(scalar);
  c.attention_logit_cap = 50;
  c.final_logit_cap = 30;
  c.sliding_window = 4096;
  c.full_attention_interval = 2;
  return c;
}

bool is_gemma(const ModelConfig& c) {
  return !c.is_latent() && !c.has_experts() && c.zero_centered_norms &&
         c.activation == model::Activation::geglu_tanh;
}

bool holds_gemma(const ModelConfig& c) {
  return is_gemma(c) && c.qk_norm && c.norm_places == model::NormPlaces::both && c.sliding_window > 0 &&
         c.window_rope_theta > 0;
}

bool holds_2(const ModelConfig& c) {
  return is_gemma(c) && !c.qk_norm && c.norm_places == model::NormPlaces::both && c.window_rope_theta == 0;
}

bool holds_1(const ModelConfig& c) {
  return is_gemma(c) && !c.qk_norm && c.norm_places == model::NormPlaces::before && c.sliding_window == 0;
}

Family common_gemma(const char* architecture, const char* model_type, ModelConfig base) {
  Family f = grouped_family(architecture, model_type, 1e-6, std::move(base));
  drop_keys(f, {"hidden_act"});
  replace_keys(f, {key("tie_word_embeddings", "tie_word_embeddings", true)});
  f.derive = derive_gemma;
  return f;
}

Only in_one_direction() { return off("use_bidirectional_attention", "attention in both directions is not built"); }

// Keys and refusals that Gemma 2 and 3 share.
Family later(const char* architecture, const char* model_type, ModelConfig base) {
  Family f = common_gemma(architecture, model_type, std::move(base));
  add_keys(f, {fixed("hidden_activation", "gelu_pytorch_tanh"), own_attention_bias_key(), score_scale()});
  f.only = {is("hidden_activation", "gelu_pytorch_tanh", "only 'gelu_pytorch_tanh' is built"),
            above_zero("query_pre_attn_scalar"), in_one_direction()};
  f.read_besides = {"hidden_act", "cache_implementation"};
  return f;
}

}  // namespace

Family gemma() {
  Family f = common_gemma("GemmaForCausalLM", "gemma", base_1());
  f.keys.push_back(read_elsewhere("hidden_act", [](const ModelConfig&) { return Written("gelu_pytorch_tanh"); }));
  f.keys.push_back(own_attention_bias_key());
  f.only = {is("hidden_act", "gelu_pytorch_tanh", "only 'gelu_pytorch_tanh' is built"),
            is("hidden_activation", "gelu_pytorch_tanh", "only 'gelu_pytorch_tanh' is built"), in_one_direction()};
  f.rewrite = rewrite_1;
  f.holds = holds_1;
  f.presets = {{"gemma-2b", sized_1(base_1(), 2048, 18, 16384, 8, 1)},
               {"gemma-7b", sized_1(base_1(), 3072, 28, 24576, 16, 16)}};
  return f;
}

Family gemma2() {
  Family f = later("Gemma2ForCausalLM", "gemma2", base_2());
  f.keys.push_back(cap_key("attn_logit_softcapping", "attention_logit_cap", &ModelConfig::attention_logit_cap, 50));
  f.keys.push_back(logit_cap(30));
  add_keys(f, window_of_all_but_every_nth(4096, "", 2));
  f.only.insert(f.only.end(), {above_zero("attn_logit_softcapping"), above_zero("final_logit_softcapping")});
  f.rewrite = rewrite_2;
  f.holds = holds_2;
  f.presets = {{"gemma-2-2b", sized_2(2304, 26, 9216, 8, 4, 256, 256)},
               {"gemma-2-9b", sized_2(3584, 42, 14336, 16, 8, 256, 256)},
               {"gemma-2-27b", sized_2(4608, 46, 36864, 32, 16, 128, 144)}};
  return f;
}

Family gemma3() {
  Family f = later("Gemma3ForCausalLM", "gemma3_text", base_gemma());
  f.keys.push_back(logit_cap(0));
  f.keys.push_back(key("rope_local_base_freq", "window_rope_theta", kLocalTheta));
  add_keys(f, window_of_all_but_every_nth(4096, "sliding_window_pattern", 6));
  f.only.insert(f.only.end(), {above_zero("rope_local_base_freq"), above_zero("sliding_window_pattern")});
  // Transformers writes its own copy of the pattern and reads layer_types.
  f.read_besides.emplace_back("_sliding_window_pattern");
  f.rewrite = rewrite_gemma;
  f.holds = holds_gemma;
  f.presets = {{"gemma-3-270m", sized_gemma(640, 18, 2048)}, {"gemma-3-1b", sized_gemma(1152, 26, 6912)}};
  return f;
}

Family gemma3_beside_pictures() {
  Family f = beside_pictures(gemma3(), "Gemma3ForConditionalGeneration", "gemma3");
  drop_keys(f, {"final_logit_softcapping"});  // Transformers caps no logits here
  f.rewrite = take_text_gemma3;
  f.spelt = spelt_ahead_of_model;
  f.also_spelt = spelt_beside_pictures;
  return f;
}

}  // namespace heddle::config
