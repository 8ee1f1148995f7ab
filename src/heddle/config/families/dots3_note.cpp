// dots3 note: latent attention with an indexer in some layers, and with a window in the others, whose heads and
// latents are of other sizes. Latents are scaled, the rotary key has a norm, a gate a head is on what attention
// makes.
//
// Sources: Dots3NoteTextConfig and Dots3NoteConfig of Transformers 5.24, gone through key by key, whose standard
// sizes are those of dots3-note-prev.
#include <algorithm>
#include <array>

#include "heddle/base/count_text.h"
#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/formats/json_text.h"
#include "heddle/model/keys.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr const char *kIndexed = "indexed_attention", *kFull = "full_attention", *kWindow = "sliding_attention";
constexpr const char *kByLayer = "per_layer_config", *kWindowTheta = "swa_rope_theta";
constexpr int64_t kMostLayers = 4096;

// Sizes that layers with a window may have of their own. Each has the member of other layers, and the value that
// older files mean without it.
struct OfWindows {
  const char* name;
  int64_t ModelConfig::*all;
  int64_t ModelConfig::*windows;
  int64_t standard;
};
constexpr std::array<OfWindows, 6> kOfWindows{
    {{"num_attention_heads", &ModelConfig::num_attention_heads, &ModelConfig::window_attention_heads, 64},
     {"q_lora_rank", &ModelConfig::q_lora_rank, &ModelConfig::window_q_lora_rank, 1024},
     {"kv_lora_rank", &ModelConfig::kv_lora_rank, &ModelConfig::window_kv_lora_rank, 1024},
     {"qk_nope_head_dim", &ModelConfig::qk_nope_head_dim, &ModelConfig::window_qk_nope_head_dim, 192},
     {"qk_rope_head_dim", &ModelConfig::qk_rope_head_dim, &ModelConfig::window_qk_rope_head_dim, 64},
     {"v_head_dim", &ModelConfig::v_head_dim, &ModelConfig::window_v_head_dim, 128}}};

int64_t layers_of(const Json& root) {
  const Json layers = root.value("num_hidden_layers", Json());
  return layers.is_number_integer() && layers >= 0 && layers <= kMostLayers ? layers.get<int64_t>() : 0;
}

Json taken(Json& root, const char* name, Json otherwise = nullptr) {
  const Json value = root.value(name, Json());
  root.erase(name);
  return value.is_null() ? otherwise : value;
}

// A word a layer for attention, in the words of newer files.
void name_layer_types(Json& root, const std::string& place) {
  const bool newer = root.contains(kByLayer);
  const Json uses = taken(root, "use_dsa", newer ? Json() : Json(true)),
             windows = taken(root, "use_sliding_window", true);
  const char* const full = uses == false ? kFull : kIndexed;
  Json& types = root["layer_types"];
  if (types.is_null()) {
    types = Json::array();
    for (int64_t l = 0; l < layers_of(root); ++l)
      types.push_back(windows == false || l < 2 || l % 4 == 1 ? full : kWindow);
  }
  if (!types.is_array() || std::ssize(types) != layers_of(root))
    config_error("{}: 'layer_types' is {}: a word for each layer is expected", place, formats::shown(types));
  for (Json& type : types) {
    if (!uses.is_null() && (type == kFull || type == kIndexed)) type = full;
    if (type != kFull && type != kIndexed && type != kWindow) {
      config_error("{}: 'layer_types' has {}, accepted are '{}', '{}' and '{}'", place, formats::shown(type),
                   kIndexed, kFull, kWindow);
    }
  }
  const auto has = [&](const char* type) { return std::find(types.begin(), types.end(), type) != types.end(); };
  if (has(kFull) && has(kIndexed))
    config_error("{}: 'layer_types' has '{}' and '{}': only one of them is built", place, kFull, kIndexed);
  if (root.value("sliding_window", Json()).is_null())
    root["sliding_window"] = taken(root, "sliding_window_size", 512);
}

// Transformers writes numbers of layers with zeros in front: "02".
void number_layers(Json& by_layer, const std::string& place) {
  Json numbered = Json::object();
  for (const auto& [name, value] : by_layer.items()) {
    const std::optional<double> layer = number_of(name);
    if (!layer || *layer < 0 || *layer > kMostLayers) {
      config_error("{}: '{}' has the key {}, numbers of layers are expected", place, kByLayer,
                   formats::shown(Json(name)));
    }
    numbered[std::to_string(static_cast<int64_t>(*layer))] = value;
  }
  by_layer = std::move(numbered);
}

// Sizes of layers with a window: an object a layer, all alike.
void name_window_sizes(Json& root, const std::string& place) {
  const Json& types = root["layer_types"];
  const bool newer = !root.value(kByLayer, Json()).is_null();
  Json own = Json::object(), heads = taken(root, "swa_num_key_value_heads"), width = taken(root, "swa_head_dim");
  for (const OfWindows& each : kOfWindows) {
    const Json older = taken(root, (std::string("swa_") + each.name).c_str());
    if (!newer) own[each.name] = older.is_null() ? Json(each.standard) : older;
  }
  if (!newer && width.is_number_integer() && own["qk_nope_head_dim"].is_number_integer())
    own["qk_rope_head_dim"] = width.get<int64_t>() - own["qk_nope_head_dim"].get<int64_t>();
  if (!newer) {
    root[kByLayer] = Json::object();
    for (size_t l = 0; l < types.size(); ++l) {
      if (types[l] == kWindow) root[kByLayer][std::to_string(l)] = own;
    }
  }
  number_layers(root[kByLayer], place);
  Json first;
  for (size_t l = 0; l < types.size(); ++l) {
    Json object = root[kByLayer].value(std::to_string(l), Json::object());
    if (!object.is_object())
      config_error("{}: '{}.{}' is {}, an object is expected", place, kByLayer, l, formats::shown(object));
    for (const char* name : {"num_key_value_heads", "head_dim"}) object.erase(name);  // they follow from others
    for (const auto& [name, value] : object.items()) {
      if (std::none_of(kOfWindows.begin(), kOfWindows.end(), [&](const OfWindows& e) { return e.name == name; }))
        config_error("{}: '{}.{}.{}' is {}: only sizes of heads and latents are built", place, kByLayer, l, name,
                     formats::shown(value));
    }
    if (types[l] != kWindow && !object.empty())
      config_error("{}: '{}.{}' is {}: only layers with a window differ from the others", place, kByLayer, l,
                   formats::shown(object));
    if (types[l] != kWindow) continue;
    if (first.is_null()) first = object;
    if (first != object)
      config_error("{}: '{}.{}' is {} and that of another layer with a window {}: they must be alike", place,
                   kByLayer, l, formats::shown(object), formats::shown(first));
  }
  root[kByLayer] = first.is_null() ? Json::object() : first;
}

// Rotary positions by the kind of layer, plain ones.
void name_rotations(Json& root, const std::string& place) {
  const Json theta = taken(root, "rope_theta", 8e7), of_windows = taken(root, kWindowTheta, 5e4);
  Json all = taken(root, "rope_parameters", taken(root, "rope_scaling"));
  const auto is_section = [](const Json& value) { return value.is_object() && !value.empty(); };
  root["rope_theta"] = theta;
  root[kWindowTheta] = of_windows;
  if (!is_section(all)) return;
  const bool nested = all.contains(kIndexed) || all.contains(kFull) || all.contains(kWindow);
  for (const auto& [layer, key] :
       {std::pair{kIndexed, "rope_theta"}, {kFull, "rope_theta"}, {kWindow, kWindowTheta}}) {
    const Json section = nested ? all.value(layer, Json()) : all;
    if (!is_section(section)) continue;
    const JsonKeys rope(section, place, fmt::format("rope_parameters.{}.", layer));
    if (rope_kind(rope) != "default")
      config_error("{}: 'rope_parameters' are of the type {}, only 'default' is built", place,
                   formats::shown(Json(rope_kind(rope))));
    rope.refuse_others(
        {"type", "rope_type", "rope_theta", "partial_rotary_factor"});  // the last follows from widths
    root[key] =
        rope.number("rope_theta", key == kWindowTheta && nested ? of_windows.get<double>() : theta.get<double>());
  }
}

void name_mlps(Json& root, const std::string& place) {
  const Json dense = taken(root, "first_k_dense_replace", 1), frequency = taken(root, "moe_layer_freq", 1);
  if (const Json shared = taken(root, "moe_shared_expert_intermediate_size"); !shared.is_null())
    root["shared_experts_intermediate_size"] = shared;
  if (!root.value("mlp_layer_types", Json()).is_null()) return;
  const bool listed = frequency.is_array() && std::ssize(frequency) == layers_of(root);
  if (!dense.is_number_integer() || (!listed && frequency != 1)) {
    config_error("{}: 'moe_layer_freq' is {}: 1, or a number a layer is expected", place,
                 formats::shown(frequency));
  }
  Json types = Json::array();
  for (int64_t l = 0; l < layers_of(root); ++l) {
    const bool sparse = l >= dense.get<int64_t>() && (!listed || frequency[static_cast<size_t>(l)] != 0);
    types.push_back(sparse ? "sparse" : "dense");
  }
  root["mlp_layer_types"] = std::move(types);
}

void rewrite_dots3(Json& root, const std::string& place) {
  join_names(root, place, {{"num_local_experts", "n_routed_experts"}});
  name_layer_types(root, place);
  name_window_sizes(root, place);
  name_rotations(root, place);
  name_mlps(root, place);
}

void rewrite_dots3_folder(Json& root, const std::string& place) {
  if (!root.value("text_config", Json()).is_null()) take_text_config(root, place);
  for (const char* beside : {"vision_config", "audio_config"}) root.erase(beside);
  rewrite_dots3(root, place);
}

PublishedKey kinds_dots3() {
  return {.name = "layer_types",
          .ours = "layer_pattern",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                std::string pattern;
                bool indexed = false;
                for (const Json& type : *keys.find("layer_types")) {
                  pattern +=
                      static_cast<char>(type == kWindow ? model::LayerKind::window : model::LayerKind::attention);
                  indexed = indexed || type == kIndexed;
                }
                const bool windows = pattern.find(static_cast<char>(model::LayerKind::window)) != std::string::npos;
                c.layer_pattern = windows ? pattern : "";
                c.sliding_window = windows ? keys.whole("sliding_window") : 0;
                c.index_topk = indexed ? keys.whole("index_topk", 2048) : 0;
                c.window_rope_theta = windows ? keys.number(kWindowTheta) : 0;
                const JsonKeys own(*keys.find(kByLayer), keys.place(), std::string(kByLayer) + ".");
                for (const OfWindows& each : kOfWindows) {
                  const int64_t size = own.whole(each.name, c.*each.all);
                  c.*each.windows = windows && size != c.*each.all ? size : 0;
                }
              },
          .write =
              [](const ModelConfig& c) {
                Written types = Written::array();
                const char* const full = c.selects() ? kIndexed : kFull;
                for (int64_t l = 0; l < c.num_hidden_layers; ++l) types.push_back(c.has_window(l) ? kWindow : full);
                return types;
              }};
}

Written sizes_by_layer(const ModelConfig& c) {
  Written own = Written::object(), all = Written::object();
  for (const OfWindows& each : kOfWindows)
    if (c.*each.windows > 0) own[each.name] = c.*each.windows;
  if (c.window_attention_heads > 0) own["num_key_value_heads"] = c.window_attention_heads;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    if (!c.has_window(l)) continue;
    const auto width = c.latent_widths(l);
    own["head_dim"] = width.head();
    all[std::to_string(l)] = own;
  }
  return all;
}

Written rotations_dots3(const ModelConfig& c) {
  Written all = Written::object();
  const auto plain = [](double theta) { return Written{{"rope_type", "default"}, {"rope_theta", theta}}; };
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
    const bool window = c.has_window(l);
    all[window ? kWindow : c.selects() ? kIndexed : kFull] = plain(window ? c.window_rope_theta : c.rope_theta);
  }
  return all;
}

PublishedKey shared_width_dots3() {
  return {.name = "shared_experts_intermediate_size",
          .ours = "shared_intermediate_size",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                const int64_t all = keys.whole("shared_experts_intermediate_size", 1536) * c.n_shared_experts;
                c.shared_intermediate_size = all == c.n_shared_experts * c.moe_intermediate_size ? 0 : all;
              },
          .write =
              [](const ModelConfig& c) {
                return Written(c.shared_width() / std::max<int64_t>(1, c.n_shared_experts));
              }};
}

bool is_beside_dots3(std::string_view name, const HasTensor& has) {
  constexpr std::array<std::string_view, 8> kBeside{
      "vision_encoder.",      "audio_encoder.",       "audio_adapter.",      "model.vision_encoder.",
      "model.audio_encoder.", "model.audio_adapter.", "model.vision_tower.", "model.audio_tower."};
  const auto starts = [&](std::string_view part) { return name.starts_with(part); };
  if (std::any_of(kBeside.begin(), kBeside.end(), starts)) return true;
  // Layers that predict further tokens, which Transformers does not read either.
  constexpr std::array<std::string_view, 3> kAhead{"model.mtp.", "model.layers.46.",
                                                   "model.language_model.layers.46."};
  return std::any_of(kAhead.begin(), kAhead.end(), starts) &&
         has("model.layers.0.self_attn.k_rope_only_layernorm.weight");
}

ModelConfig note_prev() {
  ModelConfig c;
  c.vocab_size = 152064;
  c.hidden_size = 5120;
  c.num_hidden_layers = 46;
  c.intermediate_size = 13824;
  c.rms_norm_eps = c.latent_norm_eps = 1e-5;
  c.max_position_embeddings = 524288;
  c.num_attention_heads = 128;
  c.q_lora_rank = 1024;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = c.v_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.scaled_latents = c.rotary_key_norm = c.indexer_rope_interleave = true;
  c.attention_gate = model::AttentionGate::head;
  c.index_topk = 2048;
  c.index_n_heads = 64;
  c.index_head_dim = 128;
  c.sliding_window = 512;
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) c.layer_pattern += l < 2 || l % 4 == 1 ? '*' : 'W';
  c.window_attention_heads = 64;
  c.window_kv_lora_rank = 1024;
  c.window_qk_nope_head_dim = 192;
  c.rope_theta = 8e7;
  c.window_rope_theta = 5e4;
  c.n_routed_experts = 256;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 1536;
  return c;
}

}  // namespace

Family dots3_note_text() {
  Family f = deepseek_v3();
  f.architecture = "Dots3NoteForCausalLM";
  f.model_type = "dots3_note_text";
  f.base.scaled_latents = f.base.rotary_key_norm = f.base.indexer_rope_interleave = true;
  f.base.attention_gate = model::AttentionGate::head;
  f.base.index_topk = 2048;
  drop_keys(f, {"moe_layer_freq", "rope_theta", "rope_scaling", "rope_interleave", "scoring_func", "topk_method",
                "num_nextn_predict_layers"});
  replace_keys(f, {key("rms_norm_eps", "rms_norm_eps", 1e-5), key("n_group", "n_group", 1),
                   key("topk_group", "topk_group", 1), key("routed_scaling_factor", "routed_scaling_factor", 1.0)});
  for (PublishedKey& each : f.keys) {
    if (each.name == "first_k_dense_replace") each = mlp_layer_types_key(0);
  }
  const auto nothing = [](const JsonKeys&, ModelConfig&) {};
  add_keys(f, {key("index_head_dim", "index_head_dim", 128),
               key("index_n_heads", "index_n_heads", 64),
               read_elsewhere(
                   "index_topk", [](const ModelConfig& c) { return Written(c.selects() ? c.index_topk : 2048); },
                   "index_topk"),
               shared_width_dots3(),
               {.name = "rope_parameters",
                .ours = "rope_theta",
                .read = [](const JsonKeys& keys, ModelConfig& c) { c.rope_theta = keys.number("rope_theta"); },
                .write = rotations_dots3},
               read_elsewhere(
                   "sliding_window",
                   [](const ModelConfig& c) { return Written(c.sliding_window > 0 ? c.sliding_window : 512); },
                   "sliding_window"),
               kinds_dots3(),
               {.name = kByLayer, .read = nothing, .write = sizes_by_layer},
               fixed("mlp_bias", false),
               fixed("pad_token_id", nullptr)});  // Transformers has one beyond small vocabularies
  f.said = {"scaled_latents",      "rotary_key_norm",         "indexer_rope_interleave", "attention_gate",
            "latent_norm_eps",     "window_rope_theta",       "window_attention_heads",  "window_q_lora_rank",
            "window_kv_lora_rank", "window_qk_nope_head_dim", "window_qk_rope_head_dim", "window_v_head_dim",
            "max_window_layers",   "full_attention_interval", "full_attention_offset"};
  std::erase_if(f.only, [](const Only& each) {
    return each.name == "moe_layer_freq" || each.name == "topk_method" || each.name == "scoring_func" ||
           each.name == "head_dim" || each.name == "mlp_layer_types" || each.name == "index_topk";
  });
  f.read_besides = {"head_dim", "first_k_dense_replace", "rope_theta", kWindowTheta, "num_local_experts"};
  f.rewrite = rewrite_dots3;
  f.complete = nullptr;
  f.further = nullptr;
  f.repeats = nullptr;
  f.derive = [](ModelConfig& c) { c.latent_norm_eps = c.rms_norm_eps; };
  f.holds = [](const ModelConfig& c) {
    const auto is_said = [&](const OfWindows& each) {
      return c.*each.windows == 0 || c.*each.windows != c.*each.all;
    };
    return std::all_of(kOfWindows.begin(), kOfWindows.end(), is_said) && c.latent_norm_eps == c.rms_norm_eps &&
           c.is_latent() && c.rotary_key_norm && c.scaled_latents && c.q_lora_rank > 0 && c.turns() &&
           !c.rope_scaling && c.rope_interleave && c.indexer_rope_interleave &&
           c.attention_gate == model::AttentionGate::head && c.has_experts() && c.n_shared_experts > 0 &&
           (c.sliding_window == 0 || !c.layer_pattern.empty()) && c.num_nextn_predict_layers == 0;
  };
  f.presets = {{"dots3-note", note_prev()}};
  return f;
}

// Folders as released hold the text model's keys at the root, those of Transformers in text_config.
Family dots3_note() {
  Family f = beside_pictures(dots3_note_text(), "Dots3NoteForConditionalGeneration", "dots3_note");
  f.also_architecture = "Dots3NoteForCausalLM";
  f.rewrite = rewrite_dots3_folder;
  f.also_spelt = spelt_beside_pictures;
  f.passed_over = is_beside_dots3;
  return f;
}

}  // namespace heddle::config
