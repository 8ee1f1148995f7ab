// Gemma 4's text models. As in Gemma 3, norms stand before and after attention and MLP, and most layers have a
// window and a rotary base of their own; gains are plain. Layers with full attention have wider heads, of which the
// first pairs turn, and in the larger models keys that are values. Values are normed without a gain, scores are not
// scaled, and a number multiplies a layer's output.
//
// 26B-A4B has experts beside each MLP, each with norms of their own; that MLP is a shared expert here. In E2B and
// E4B a second embedding goes to each layer, and the last layers take keys and values of earlier ones. Their
// released folders hold keys and values of those layers too, which nothing reads, and a model of pictures.
//
// A released file says the widths of layers with full attention by "global_head_dim" and
// "num_global_key_value_heads"; Transformers 5.23 writes them as "per_layer_config".
//
// 12B ("gemma4_unified") is dense, without embeddings of layers; linear maps of its released folder take pictures
// and sounds.
//
// Sources: Gemma4TextConfig, Gemma4UnifiedTextConfig and their models in Transformers 5, gone through key by key;
// the config.json released with gemma-4-12B.
#include <algorithm>
#include <array>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr const char *kFullGemma4 = "full_attention", *kWindowGemma4 = "sliding_attention";
constexpr int64_t kEveryGemma4 = 6, kFullHeadDim = 512;
// The rewritten file has what stands by kind of layer under these names.
constexpr const char *kThetaGemma4 = "full_rope_theta", *kTurningGemma4 = "full_turning_part",
                     *kFactorGemma4 = "full_rope_factor", *kWindowThetaGemma4 = "window_rope_theta";

// A word for each layer. The last has full attention, whatever the file says of it.
void name_layers_gemma4(Json& root) {
  const Json layers = root.value("num_hidden_layers", Json());
  if (!layers.is_number_integer() || layers < 1 || layers > 4096) return;
  Json& types = root["layer_types"];
  if (types.is_null()) {
    types = Json::array();
    for (int64_t l = 1; l <= layers; ++l) types.push_back(l % kEveryGemma4 == 0 ? kFullGemma4 : kWindowGemma4);
  }
  if (types.is_array() && types.size() == layers) types.back() = kFullGemma4;
}

// Joins what a file says of each layer with full attention by its number.
void join_layers_gemma4(Json& root, const std::string& place) {
  const Json given = root.value("per_layer_config", Json()), types = root.value("layer_types", Json());
  root.erase("per_layer_config");
  if (given.is_null()) {
    const bool has_own = root.value("attention_k_eq_v", Json()) == true;  // Transformers reads them then alone
    if (!has_own) root.erase("num_global_key_value_heads");
    return;
  }
  const auto refuse = [&] {
    config_error(
        "{}: 'per_layer_config' is {}, accepted: 'head_dim' and 'num_key_value_heads', alike for each layer with "
        "full attention and for no other",
        place, formats::shown(given));
  };
  if (!given.is_object() || !types.is_array()) refuse();
  Json of_full;
  size_t described = 0;
  for (const auto& [number, values] : given.items()) {
    const bool digits =
        !number.empty() && number.size() < 6 && number.find_first_not_of("0123456789") == std::string::npos;
    const size_t layer = digits ? std::stoul(number) : types.size();
    if (layer >= types.size() || types[layer] != kFullGemma4 || !values.is_object()) refuse();
    for (const auto& [name, value] : values.items()) {
      if (name != "head_dim" && name != "num_key_value_heads") refuse();
    }
    if (of_full.is_null()) of_full = values;
    if (values != of_full) refuse();
    ++described;
  }
  if (described != 0 && described != static_cast<size_t>(std::count(types.begin(), types.end(), kFullGemma4)))
    refuse();
  if (of_full.is_null()) of_full = Json::object();
  root["global_head_dim"] = of_full.value("head_dim", root.value("head_dim", Json()));
  root["num_global_key_value_heads"] = of_full.value("num_key_value_heads", Json());
}

// Rotary keys by kind of layer.
void flatten_rotation_gemma4(Json& root, const std::string& place) {
  const Json by_layer = root.value("rope_parameters", Json());
  root.erase("rope_parameters");
  if (by_layer.is_null()) return;
  const JsonKeys kinds(by_layer, place, "rope_parameters.");
  kinds.refuse_others({kFullGemma4, kWindowGemma4});
  for (const char* kind : {kFullGemma4, kWindowGemma4}) {
    if (kinds.find(kind) == nullptr) continue;
    const bool full = kind == kFullGemma4;
    const JsonKeys rope(*kinds.find(kind), place, fmt::format("rope_parameters.{}.", kind));
    const std::string type = rope_kind(rope);
    if (type != "default" && !(full && type == "proportional")) {
      config_error("{}: 'rope_parameters.{}' is of the type '{}', accepted: {}", place, kind, escaped(type, 60),
                   full ? "'default' and 'proportional'" : "'default'");
    }
    if (type == "default") {
      rope.refuse_others({"rope_type", "type", "rope_theta"});
    } else {
      rope.refuse_others({"rope_type", "type", "rope_theta", "partial_rotary_factor", "factor"});
      root[kTurningGemma4] = rope.number("partial_rotary_factor", 1);
      if (const double factor = rope.number("factor", 1); factor != 1) root[kFactorGemma4] = factor;
    }
    root[full ? kThetaGemma4 : kWindowThetaGemma4] = rope.number("rope_theta");
    if (full && type == "default") root[kTurningGemma4] = 1.0;
  }
}

void rewrite_gemma4(Json& root, const std::string& place) {
  for (const char* name : {kThetaGemma4, kTurningGemma4, kFactorGemma4, kWindowThetaGemma4}) {
    if (root.contains(name)) config_error("{}: '{}' is no key of Gemma 4", place, name);
  }
  name_layers_gemma4(root);
  join_layers_gemma4(root, place);
  flatten_rotation_gemma4(root, place);
}

void take_text_gemma4(Json& root, const std::string& place) {
  take_text_config(root, place);
  rewrite_gemma4(root, place);
}

// Widths and heads: of layers with a window under the usual names, of the others under names of their own.
PublishedKey head_dims() {
  return {.name = "head_dim",
          .ours = "head_dim",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.window_head_dim = keys.whole("head_dim");
                c.head_dim = keys.whole("global_head_dim", kFullHeadDim);
              },
          .write = [](const ModelConfig& c) { return Written(c.window_head_dim); }};
}
PublishedKey key_value_heads_gemma4() {
  return {.name = "num_key_value_heads",
          .ours = "num_key_value_heads",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.window_key_value_heads = keys.whole("num_key_value_heads");
                c.num_key_value_heads = keys.whole("num_global_key_value_heads", c.window_key_value_heads);
              },
          .write = [](const ModelConfig& c) { return Written(c.window_key_value_heads); }};
}

PublishedKey rotation_gemma4() {
  return {.name = "rope_parameters",
          .ours = "rope_theta",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                c.rope_theta = keys.number(kThetaGemma4, 1e6);
                c.window_rope_theta = keys.number(kWindowThetaGemma4, 1e4);
                c.turning_pairs_factor = keys.number(kTurningGemma4, 0.25);
                if (const double factor = keys.number(kFactorGemma4, 1); factor != 1)
                  c.rope_scaling = model::RopeScaling{.factor = factor, .type = model::RopeType::linear};
              },
          .write =
              [](const ModelConfig& c) {
                Written full{{"rope_type", "proportional"},
                             {"partial_rotary_factor", c.turning_pairs_factor},
                             {"rope_theta", c.rope_theta}};
                if (c.rope_scaling) full["factor"] = c.rope_scaling->factor;
                return Written{{kFullGemma4, full},
                               {kWindowGemma4, {{"rope_type", "default"}, {"rope_theta", c.window_rope_theta}}}};
              }};
}

PublishedKey experts_gemma4() {
  return {.name = "enable_moe_block",
          .ours = "",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                if (!keys.boolean("enable_moe_block", false)) return make_dense(c);
                c.first_k_dense_replace = 0;
                c.n_routed_experts = keys.whole("num_experts");
                c.num_experts_per_tok = keys.whole("top_k_experts");
                c.moe_intermediate_size = keys.whole("moe_intermediate_size");
                c.n_shared_experts = 1;
                c.shared_intermediate_size = c.intermediate_size;
                c.expert_norms = c.expert_scales = true;
              },
          .write = [](const ModelConfig& c) { return Written(c.has_experts()); }};
}
PublishedKey of_experts_gemma4(const char* name, int64_t ModelConfig::*member) {
  return read_elsewhere(name,
                        [=](const ModelConfig& c) { return c.has_experts() ? Written(c.*member) : Written(); });
}

// MLPs twice as wide in the layers that share keys.
PublishedKey double_mlp() {
  return {.name = "use_double_wide_mlp",
          .ours = "sharing_intermediate_size",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                const bool doubles = keys.boolean("use_double_wide_mlp", false) && c.shared_key_value_layers > 0;
                c.sharing_intermediate_size = doubles ? 2 * c.intermediate_size : 0;
              },
          .write = [](const ModelConfig& c) { return Written(c.sharing_intermediate_size > 0); }};
}

void derive_gemma4(ModelConfig& c) {
  c.embedding_multiplier = std::sqrt(static_cast<double>(c.hidden_size));
  if (c.has_experts()) c.shared_intermediate_size = c.intermediate_size;
}

ModelConfig base_gemma4() {
  ModelConfig c = grouped_base();
  c.norm_places = model::NormPlaces::both;
  c.activation = model::Activation::geglu_tanh;
  c.qk_norm = c.value_norm = c.layer_scalars = true;
  c.attention_scale = 1;
  c.rope_theta = 1e6;
  c.window_rope_theta = 1e4;
  c.turning_pairs_factor = 0.25;
  c.head_dim = kFullHeadDim;
  c.window_head_dim = 256;
  return c;
}

bool holds_gemma4(const ModelConfig& c) {
  if (c.is_latent() || !c.value_norm || !c.layer_scalars || c.sliding_window == 0 || c.window_rope_theta == 0)
    return false;
  if (c.window_head_dim == 0 || c.window_key_value_heads == 0 || c.has_window(c.num_hidden_layers - 1))
    return false;
  if (c.window_key_value_heads != c.num_key_value_heads && !c.keys_are_values) return false;
  if (c.rope_scaling && c.rope_scaling->type != model::RopeType::linear) return false;
  if (c.sharing_intermediate_size > 0 && c.sharing_intermediate_size != 2 * c.intermediate_size) return false;
  if (!c.has_experts()) return true;
  return c.expert_norms && c.expert_scales && c.n_shared_experts == 1 && c.first_k_dense_replace == 0 &&
         c.sharing_intermediate_size == 0 && c.shared_intermediate_size == c.intermediate_size;
}

std::string spelt_gemma4(std::string name) {
  return respelt(std::move(name), {{".mlp.gate.weight", ".router.proj.weight"},
                                   {".mlp.gate.scale", ".router.scale"},
                                   {".mlp.gate.per_expert_scale", ".router.per_expert_scale"},
                                   {".mlp.shared_experts.", ".mlp."}});
}

std::string spelt_beside_pictures_gemma4(std::string name) {
  return spelt_beside_pictures(spelt_gemma4(std::move(name)));
}

std::optional<ReleasedPlace> stacked_gemma4(const std::string& name, const std::vector<int64_t>& shape,
                                            int64_t experts, const JoinedRows&) {
  return stacked_expert(name, shape, experts, "experts.");
}
std::optional<ReleasedPlace> stacked_beside_pictures_gemma4(const std::string& name,
                                                            const std::vector<int64_t>& shape, int64_t experts,
                                                            const JoinedRows& joined) {
  std::optional<ReleasedPlace> place = stacked_gemma4(name, shape, experts, joined);
  if (place) place->name = spelt_beside_pictures_gemma4(place->name);
  return place;
}

// Keys and values of layers that take others'.
bool passed_over_gemma4(std::string_view name, const HasTensor& has) {
  constexpr std::string_view kAttends = ".self_attn.";
  const size_t at = name.find(kAttends);
  if (at == std::string_view::npos || !has(std::string(name.substr(0, at)) + ".layer_scalar")) return false;
  const std::string_view part = name.substr(at + kAttends.size());
  return part == "k_proj.weight" || part == "v_proj.weight" || part == "k_norm.weight";
}

ModelConfig sized_gemma4(int64_t hidden, int64_t layers, int64_t mlp, int64_t heads, int64_t kv_heads) {
  ModelConfig c = sized(base_gemma4(), {262144, hidden, layers, mlp, heads, kv_heads, 131072, kFullHeadDim});
  c.window_key_value_heads = kv_heads;
  c.tie_word_embeddings = true;
  c.sliding_window = 512;
  c.full_attention_interval = kEveryGemma4;
  c.final_logit_cap = 30;
  make_dense(c);
  derive_gemma4(c);
  return c;
}

// Keys are values where attention is full.
ModelConfig larger_gemma4(ModelConfig c, int64_t window_kv_heads) {
  c.keys_are_values = true;
  c.window_key_value_heads = window_kv_heads;
  c.sliding_window = 1024;
  c.max_position_embeddings = 262144;
  return c;
}

ModelConfig mixture_gemma4() {
  ModelConfig c = larger_gemma4(sized_gemma4(2816, 30, 2112, 16, 2), 8);
  c.first_k_dense_replace = 0;
  give_experts(c, {.experts = 128, .chosen = 8, .width = 704, .shared = 1});
  c.expert_norms = c.expert_scales = true;
  derive_gemma4(c);
  return c;
}

ModelConfig unified_gemma4() { return larger_gemma4(sized_gemma4(3840, 48, 15360, 16, 1), 8); }

ModelConfig smaller_gemma4(ModelConfig c, int64_t sharing) {
  c.shared_key_value_layers = sharing;
  c.layer_embedding_size = 256;
  return c;
}

// True for tensors that take pictures and sounds, beside the text model.
bool is_beside_gemma4(std::string_view name, const HasTensor&) {
  constexpr std::array<std::string_view, 5> kBeside{"model.vision_tower.", "model.audio_tower.",
                                                    "model.vision_embedder.", "model.embed_vision.",
                                                    "model.embed_audio."};
  return std::any_of(kBeside.begin(), kBeside.end(), [&](std::string_view part) { return name.starts_with(part); });
}

ModelConfig e2b_gemma4() {
  ModelConfig c = smaller_gemma4(sized_gemma4(1536, 35, 6144, 8, 1), 20);
  c.full_attention_interval = 5;
  c.sharing_intermediate_size = 2 * c.intermediate_size;
  return c;
}

}  // namespace

Family gemma4() {
  Family f = grouped_family("Gemma4ForCausalLM", "gemma4_text", 1e-6, base_gemma4());
  drop_keys(f, {"hidden_act", "rope_theta", "rope_scaling"});
  replace_keys(f, {head_dims(), key_value_heads_gemma4(), key("tie_word_embeddings", "tie_word_embeddings", true)});
  add_keys(f, window_of_all_but_every_nth(512, "", kEveryGemma4));
  add_keys(
      f,
      {
          read_elsewhere("global_head_dim", [](const ModelConfig& c) { return Written(c.head_dim); }),
          read_elsewhere(
              "num_global_key_value_heads",
              [](const ModelConfig& c) { return c.keys_are_values ? Written(c.num_key_value_heads) : Written(); }),
          rotation_gemma4(),
          fixed("hidden_activation", "gelu_pytorch_tanh"),
          own_attention_bias_key(),
          cap_key("final_logit_softcapping", "final_logit_cap", &ModelConfig::final_logit_cap, 0),
          key("attention_k_eq_v", "keys_are_values", false),
          key("num_kv_shared_layers", "shared_key_value_layers", 0),
          double_mlp(),
          key("hidden_size_per_layer_input", "layer_embedding_size", 256),
          read_elsewhere("vocab_size_per_layer_input", [](const ModelConfig& c) { return Written(c.vocab_size); }),
          experts_gemma4(),
          of_experts_gemma4("num_experts", &ModelConfig::n_routed_experts),
          of_experts_gemma4("top_k_experts", &ModelConfig::num_experts_per_tok),
          of_experts_gemma4("moe_intermediate_size", &ModelConfig::moe_intermediate_size),
      });
  f.said = {"window_head_dim",   "window_key_value_heads",  "window_rope_theta",    "turning_pairs_factor",
            "max_window_layers", "full_attention_interval", "full_attention_offset"};
  f.only = {
      is("hidden_activation", "gelu_pytorch_tanh", "only 'gelu_pytorch_tanh' is built"),
      is("use_bidirectional_attention", "vision", "attention of text in both directions is not built"),
      above_zero("sliding_window"),
      above_zero("final_logit_softcapping"),
      {"vocab_size_per_layer_input",
       [](const Json& v, const Json& root) {
         return root.value("hidden_size_per_layer_input", Json()) == 0 || v == root.value("vocab_size", Json());
       },
       "'vocab_size' is expected: each token has a row in both embeddings"},
      {"use_double_wide_mlp",
       [](const Json& v, const Json& root) { return v != true || root.value("enable_moe_block", Json()) != true; },
       "MLPs beside experts are of one width"}};
  f.read_besides = {kThetaGemma4, kTurningGemma4, kFactorGemma4, kWindowThetaGemma4, "per_layer_config"};
  f.rewrite = rewrite_gemma4;
  f.derive = derive_gemma4;
  f.holds = holds_gemma4;
  f.spelt = spelt_gemma4;
  f.stacked = stacked_gemma4;
  f.passed_over = passed_over_gemma4;
  f.presets = {{"gemma-4-e2b", e2b_gemma4()},
               {"gemma-4-e4b", smaller_gemma4(sized_gemma4(2560, 42, 10240, 8, 2), 18)},
               {"gemma-4-12b", unified_gemma4()},
               {"gemma-4-26b-a4b", mixture_gemma4()},
               {"gemma-4-31b", larger_gemma4(sized_gemma4(5376, 60, 21504, 32, 4), 16)}};
  return f;
}

Family gemma4_unified_text() {
  Family f = gemma4();
  f.architecture = "Gemma4UnifiedForCausalLM";
  f.model_type = "gemma4_unified_text";
  drop_keys(f, {"hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block", "num_experts",
                "top_k_experts", "moe_intermediate_size", "sliding_window", "layer_types"});
  add_keys(f, window_of_all_but_every_nth(1024, "", kEveryGemma4));
  f.derive = [](ModelConfig& c) {
    make_dense(c);
    derive_gemma4(c);
  };
  f.holds = [](const ModelConfig&) { return false; };  // it is written as the other text models
  f.presets.clear();
  return f;
}

namespace {

// Folders as released hold what takes pictures, and some sounds, too. They are written as text models.
Family released_gemma4(Family text, const char* architecture, const char* type) {
  Family f = beside_pictures(std::move(text), architecture, type);
  f.rewrite = take_text_gemma4;
  f.spelt = spelt_beside_pictures_gemma4;
  f.stacked = stacked_beside_pictures_gemma4;
  f.passed_over = is_beside_gemma4;
  return f;
}

}  // namespace

Family gemma4_beside_pictures() { return released_gemma4(gemma4(), "Gemma4ForConditionalGeneration", "gemma4"); }
Family gemma4_unified() {
  return released_gemma4(gemma4_unified_text(), "Gemma4UnifiedForConditionalGeneration", "gemma4_unified");
}

}  // namespace heddle::config
