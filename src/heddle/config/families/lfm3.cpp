// LFM3: layers have a gated short convolution, attention to all tokens, or attention to a window of them, in any
// order. Queries and keys are normed, and a sigmoid a head gates what attention makes. Norms stand before and after
// attention, convolution and MLP, or before them alone. Layers with full attention turn the first pairs of a head;
// those with a window turn all, by a base of their own.
//
// Source: Lfm3Config and modeling_lfm3.py of Transformers 5, gone through key by key. The sizes of the preset are
// its defaults, which it names after LFM3-1.7B.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionGate;
using model::LayerKind;
using model::ModelConfig;
using model::NormPlaces;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr const char *kFullLfm3 = "full_attention", *kWindowLfm3 = "sliding_attention", *kConvolutionLfm3 = "conv";
constexpr int64_t kMostLayersLfm3 = 4096, kWindowOfLfm3 = 256;
constexpr double kThetaLfm3 = 1e6, kWindowThetaLfm3 = 1e4, kTurningLfm3 = 0.5;

// In each four layers the third has full attention. The first has a window, but in the first four.
const char* usual_kind_lfm3(int64_t layer) {
  constexpr int64_t kEvery = 4, kFull = 2;
  if (layer % kEvery == kFull) return kFullLfm3;
  return layer % kEvery == 0 && layer > 0 ? kWindowLfm3 : kConvolutionLfm3;
}

void rewrite_lfm3(Json& root, const std::string&) {
  const Json layers = root.value("num_hidden_layers", Json());
  Json& words = root["layer_types"];
  if (!words.is_null() || !layers.is_number_integer() || layers < 1 || layers > kMostLayersLfm3) return;
  words = Json::array();
  for (int64_t l = 0; l < layers.get<int64_t>(); ++l) words.push_back(usual_kind_lfm3(l));
}

void read_layers_lfm3(const JsonKeys& keys, ModelConfig& c) {
  const Json* words = keys.find("layer_types");
  const auto is_known = [](const Json& word) {
    return word == kFullLfm3 || word == kWindowLfm3 || word == kConvolutionLfm3;
  };
  if (words == nullptr || !words->is_array() || std::ssize(*words) != c.num_hidden_layers ||
      !std::all_of(words->begin(), words->end(), is_known)) {
    config_error("{}: 'layer_types' is {}: each of {} layers is '{}', '{}' or '{}'", keys.place(),
                 words == nullptr ? "null" : formats::shown(*words), c.num_hidden_layers, kConvolutionLfm3,
                 kFullLfm3, kWindowLfm3);
  }
  const auto has = [&](const char* word) { return std::find(words->begin(), words->end(), word) != words->end(); };
  if (!has(kConvolutionLfm3))
    config_error("{}: 'layer_types' is {}: one layer or more is '{}'", keys.place(), formats::shown(*words),
                 kConvolutionLfm3);
  c.sliding_window = 0;
  c.window_rope_theta = 0;
  if (!has(kWindowLfm3)) {
    std::vector<bool> attends;
    for (const Json& word : *words) attends.push_back(word == kFullLfm3);
    return set_layer_kinds(keys, attends, Recurrence::short_convolution, c);
  }
  if (keys.contains("sliding_window") && keys.find("sliding_window") == nullptr) {
    config_error("{}: 'sliding_window' is null, a number of tokens is expected: 'layer_types' has '{}'",
                 keys.place(), kWindowLfm3);
  }
  c.sliding_window = keys.whole("sliding_window", kWindowOfLfm3);
  c.full_attention_interval = 0;
  c.layer_pattern.clear();
  for (const Json& word : *words) {
    c.layer_pattern += static_cast<char>(word == kFullLfm3     ? LayerKind::attention
                                         : word == kWindowLfm3 ? LayerKind::window
                                                               : LayerKind::recurrence);
  }
}

Written write_layers_lfm3(const ModelConfig& c) {
  Written words = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l)
    words.push_back(c.is_recurrent(l) ? kConvolutionLfm3 : c.has_window(l) ? kWindowLfm3 : kFullLfm3);
  return words;
}

// Rotary keys by kind of layer. They follow the layers, of which none may have a window.
void read_rotation_lfm3(const JsonKeys& keys, ModelConfig& c) {
  c.rope_theta = kThetaLfm3;
  c.turning_pairs_factor = kTurningLfm3;
  const bool windows = c.sliding_window > 0;
  if (windows) c.window_rope_theta = kWindowThetaLfm3;
  const Json* by_kind = keys.find("rope_parameters");
  if (by_kind == nullptr) return;
  const JsonKeys kinds(*by_kind, keys.place(), "rope_parameters.");
  kinds.refuse_others({kFullLfm3, kWindowLfm3});
  for (const char* kind : {kFullLfm3, kWindowLfm3}) {
    if (kinds.find(kind) == nullptr) continue;
    const bool full = kind == kFullLfm3;
    const JsonKeys rope(*kinds.find(kind), keys.place(), fmt::format("rope_parameters.{}.", kind));
    const std::string type = rope_kind(rope);
    if (type != "default" && !(full && type == "proportional")) {
      config_error("{}: 'rope_parameters.{}' is of the type '{}', accepted: {}", keys.place(), kind,
                   escaped(type, 60), full ? "'default' and 'proportional'" : "'default'");
    }
    if (type == "default") {
      rope.refuse_others({"rope_type", "type", "rope_theta"});
    } else {
      rope.refuse_others({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
    }
    const double theta = rope.number("rope_theta");
    if (!full) {
      if (windows) c.window_rope_theta = theta;
      continue;
    }
    c.rope_theta = theta;
    c.turning_pairs_factor = type == "default" ? 1 : rope.number("partial_rotary_factor", 1);
  }
}

Written write_rotation_lfm3(const ModelConfig& c) {
  Written full{{"rope_type", "proportional"},
               {"rope_theta", c.rope_theta},
               {"partial_rotary_factor", c.turning_pairs_factor}};
  const double theta = c.window_rope_theta > 0 ? c.window_rope_theta : kWindowThetaLfm3;
  return Written{{kWindowLfm3, {{"rope_type", "default"}, {"rope_theta", theta}}}, {kFullLfm3, std::move(full)}};
}

PublishedKey norms_lfm3() {
  return {.name = "use_sandwich_norm",
          .ours = "norm_places",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.norm_places = keys.boolean("use_sandwich_norm", true) ? NormPlaces::both : NormPlaces::before;
              },
          .write = [](const ModelConfig& c) { return Written(c.norm_places == NormPlaces::both); }};
}

PublishedKey gate_lfm3() {
  return {.name = "use_attention_gate",
          .ours = "attention_gate",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.attention_gate =
                    keys.boolean("use_attention_gate", true) ? AttentionGate::head : AttentionGate::none;
              },
          .write = [](const ModelConfig& c) { return Written(c.attention_gate == AttentionGate::head); }};
}

constexpr std::string_view kAfterLfm3 = ".post_attention_layernorm.";

std::string spelt_lfm3(std::string name) {
  if (name == "model.norm.weight") return "model.embedding_norm.weight";
  return respelt(std::move(name), {{".input_layernorm.", ".operator_norm."},
                                   {kAfterLfm3, ".post_operator_norm."},
                                   {".pre_feedforward_layernorm.", ".ffn_norm."},
                                   {".post_feedforward_layernorm.", ".post_ffn_norm."},
                                   {".linear_attn.conv1d.", ".conv.conv."},
                                   {".linear_attn.", ".conv."},
                                   {".mlp.", ".feed_forward."},
                                   {".gate_proj.", ".w1."},
                                   {".up_proj.", ".w3."},
                                   {".down_proj.", ".w2."},
                                   {".self_attn.g_proj.", ".self_attn.gate_proj."}});
}

// The norm ahead of an MLP, where none stands behind it.
std::string also_spelt_lfm3(std::string name) {
  return name.find(kAfterLfm3) == std::string::npos ? spelt_lfm3(std::move(name))
                                                    : respelt(std::move(name), {{kAfterLfm3, ".ffn_norm."}});
}
std::string spelt_beside_lfm3(std::string name, const HasTensor& has) {
  const std::string ahead_of_mlp = respelt(name, {{kAfterLfm3, ".pre_feedforward_layernorm."}});
  return ahead_of_mlp == name || has(ahead_of_mlp) ? spelt_lfm3(std::move(name)) : also_spelt_lfm3(std::move(name));
}

ModelConfig base_lfm3() {
  ModelConfig c = grouped_base();
  c.qk_norm = true;
  c.norm_places = NormPlaces::both;
  c.attention_gate = AttentionGate::head;
  c.recurrence = Recurrence::short_convolution;
  c.linear_conv_kernel_dim = 7;
  c.rope_theta = kThetaLfm3;
  c.turning_pairs_factor = kTurningLfm3;
  return c;
}

ModelConfig sized_lfm3() {
  ModelConfig c = sized(base_lfm3(), {128000, 2048, 24, 7680, 16, 4, 128000, 128});
  make_dense(c);
  c.rms_norm_eps = 1e-5;
  c.tie_word_embeddings = true;
  c.sliding_window = kWindowOfLfm3;
  c.window_rope_theta = kWindowThetaLfm3;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const std::string_view kind = usual_kind_lfm3(l);
    c.layer_pattern += kind == kFullLfm3 ? '*' : kind == kWindowLfm3 ? 'W' : 'M';
  }
  return c;
}

}  // namespace

Family lfm3() {
  Family f = grouped_family("Lfm3ForCausalLM", "lfm3", 1e-5, base_lfm3());
  drop_keys(f, {"rms_norm_eps", "rope_theta", "rope_scaling"});
  replace_keys(f, {key("tie_word_embeddings", "tie_word_embeddings", true),
                   key("num_key_value_heads", "num_key_value_heads", 4), key("head_dim", "head_dim", 128),
                   key("max_position_embeddings", "max_position_embeddings", 128000)});
  f.keys.push_back(own_attention_bias_key());
  add_keys(
      f, {
             key("norm_eps", "rms_norm_eps", 1e-5),
             {.name = "layer_types", .ours = "recurrence", .read = read_layers_lfm3, .write = write_layers_lfm3},
             read_elsewhere(
                 "sliding_window",
                 [](const ModelConfig& c) { return c.sliding_window > 0 ? Written(c.sliding_window) : Written(); },
                 "sliding_window"),
             {.name = "rope_parameters",
              .ours = "rope_theta",
              .read = read_rotation_lfm3,
              .write = write_rotation_lfm3},
             key("conv_L_cache", "linear_conv_kernel_dim", 7),
             key("conv_bias", "linear_bias", false),
             norms_lfm3(),
             gate_lfm3(),
         });
  add_keys(f, layer_kind_keys());
  f.said = {"window_rope_theta", "turning_pairs_factor"};
  f.only = {never("rope_scaling", "rotary keys stand by kind of layer in 'rope_parameters'"),
            never("rope_theta", "rotary keys stand by kind of layer in 'rope_parameters'")};
  f.rewrite = rewrite_lfm3;
  f.derive = make_dense;
  f.holds = [](const ModelConfig& c) {
    const bool gates = c.attention_gate == AttentionGate::head, both = c.norm_places == NormPlaces::both;
    return c.recurrence == Recurrence::short_convolution && c.is_grouped() && c.qk_norm && !c.qk_norm_all_heads &&
           !c.is_hybrid() && !c.has_experts() && c.turns() && !c.rope_scaling && c.norm == model::Norm::rms &&
           (gates || c.attention_gate == AttentionGate::none) && (both || c.norm_places == NormPlaces::before) &&
           (gates || both || c.sliding_window > 0 || c.turning_pairs_factor < 1) &&
           (c.sliding_window > 0) == c.has_window_rotation() && c.window_rotary_factor == 0 &&
           follows(c, make_dense);
  };
  f.spelt = spelt_lfm3;
  f.also_spelt = also_spelt_lfm3;
  f.spelt_beside = spelt_beside_lfm3;
  f.presets = {{"lfm3-1.7b", sized_lfm3()}};
  return f;
}

}  // namespace heddle::config
