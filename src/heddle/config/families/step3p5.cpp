// Step-3.5-Flash: three layers of four have a window, more heads of queries, and rotary positions of their own. A
// gate a head, norms of 1 + w, DeepSeek-V3's router, one shared expert, and limits of SwiGLU in the last layers.
//
// A released file has a value a layer in lists, behind which stand those of its layers of further tokens. Its
// folder holds a layer's experts in one tensor for each of their matrices.
//
// Sources: Step3p7TextConfig and modeling_step3p7.py of Transformers 5, gone through key by key; the config.json
// file released with Step-3.5-Flash (arXiv 2602.10604).
#include <algorithm>
#include <set>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionGate;
using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr const char* kWindowStep = "sliding_attention";
// The rewritten file has what the lists say under these names: one value for layers with a window, one for the
// others.
constexpr const char *kWindowTheta = "window_rope_theta", *kPart = "full_rotary_factor",
                     *kWindowPart = "window_rotary_factor";
constexpr int64_t kMostLayers = 1 << 20;

// 0: nothing that could be a number of layers.
size_t layers_of(const Json& root) {
  const Json layers = root.value("num_hidden_layers", Json());
  return layers.is_number_integer() && layers > 0 && layers <= kMostLayers ? layers.get<size_t>() : 0;
}

// Takes off what lists say of layers of further tokens.
void trim(Json& root) {
  const size_t layers = layers_of(root);
  for (const char* name : {"layer_types", "mlp_layer_types", "rope_theta", "partial_rotary_factors",
                           "swiglu_limits", "swiglu_limits_shared"}) {
    const auto at = root.find(name);
    if (layers == 0 || at == root.end() || !at->is_array() || at->size() <= layers) continue;
    at->erase(at->begin() + static_cast<Json::difference_type>(layers), at->end());
  }
}

bool has_window(const Json& root, size_t layer) {
  const Json types = root.value("layer_types", Json());
  return types.is_array() && layer < types.size() && types[layer] == kWindowStep;
}

// A list of a number a layer becomes one for the layers with a window and one for the others.
void split(Json& root, const std::string& place, const char* name, const char* full, const char* window) {
  const Json list = root.value(name, Json());
  if (!list.is_array()) return;
  root.erase(name);
  if (list.size() != layers_of(root) ||
      !std::all_of(list.begin(), list.end(), [](const Json& v) { return v.is_number(); }))
    config_error("{}: '{}' is {}, a number for each of 'num_hidden_layers' is expected", place, name,
                 formats::shown(list));
  for (size_t l = 0; l < list.size(); ++l) {
    Json& value = root[has_window(root, l) ? window : full];
    if (value.is_null()) value = list[l];
    if (value != list[l]) {
      config_error(
          "{}: '{}' is {} of layer {}, and {} of others of its kind, accepted: one value for those with a window, "
          "one for the others",
          place, name, formats::shown(list[l]), l, formats::shown(value));
    }
  }
}

// Numbers of the layers that have experts, as words of all layers.
void name_layers_step3p5(Json& root, const std::string& place) {
  const Json given = root.value("moe_layers_enum", Json());
  if (given.is_null()) return;
  root.erase("moe_layers_enum");
  std::set<size_t> sparse;
  const auto refuse = [&] {
    config_error("{}: 'moe_layers_enum' is {}, numbers of layers are expected", place, formats::shown(given));
  };
  const size_t layers = layers_of(root);
  const auto add = [&](int64_t layer) {
    if (layer < 0 || layer > kMostLayers) refuse();
    if (static_cast<size_t>(layer) < layers) sparse.insert(static_cast<size_t>(layer));
  };
  if (given.is_array()) {
    for (const Json& each : given) each.is_number_integer() ? add(each.get<int64_t>()) : refuse();
  } else if (given.is_string()) {
    const std::string text = given.get<std::string>();
    for (size_t from = 0; from < text.size();) {
      const size_t end = std::min(text.find(',', from), text.size());
      const std::string number = text.substr(from, end - from);
      if (number.empty() || number.size() > 6 ||
          !std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }))
        refuse();
      add(std::stoll(number));
      from = end + 1;
    }
  } else {
    refuse();
  }
  Json words = Json::array();
  for (size_t l = 0; l < layers; ++l) words.push_back(sparse.contains(l) ? "sparse" : "dense");
  if (const Json other = root.value("mlp_layer_types", Json()); !other.is_null() && other != words)
    config_error("{}: 'moe_layers_enum' and 'mlp_layer_types' say different things of the layers", place);
  root["mlp_layer_types"] = words;
}

// It reads the heads that layers with a window have.
void read_other_setting(Json& root, const std::string& place) {
  const Json other = root.value("attention_other_setting", Json());
  if (other.is_null()) return;
  const JsonKeys keys(root, place, "");
  const JsonKeys setting(*keys.find("attention_other_setting"), place, "attention_other_setting.");
  setting.refuse_others(
      {"attention_type", "num_attention_heads", "num_attention_groups", "head_dim", "true_head_dim"});
  if (const std::string kind = setting.word("attention_type", kWindowStep); kind != kWindowStep)
    config_error("{}: 'attention_other_setting.attention_type' is '{}', accepted: '{}'", place, escaped(kind, 60),
                 kWindowStep);
  for (const auto& [name, own] : {std::pair{"num_attention_groups", "num_attention_groups"},
                                  {"head_dim", "head_dim"},
                                  {"true_head_dim", "head_dim"}}) {
    const Json value = other.value(name, Json());
    if (!value.is_null() && value != root.value(own, Json()))
      config_error("{}: 'attention_other_setting.{}' is {}: layers with a window have the others' '{}'", place,
                   name, formats::shown(value), own);
  }
  const Json heads = other.value("num_attention_heads", Json());
  root.erase("attention_other_setting");
  if (heads.is_null()) return;
  root["heads_in_windows"] = heads;
  join_names(root, place, {{"heads_in_windows", "num_sliding_attention_heads"}});
  root.erase("heads_in_windows");
}

// Rotary keys by kind of layer, of which each says its part of a head.
void take_parts(Json& root) {
  const auto at = root.find("rope_parameters");
  if (at == root.end() || !at->is_object()) return;
  for (const auto& [kind, name] : {std::pair{"full_attention", kPart}, {kWindowStep, kWindowPart}}) {
    const auto of = at->find(kind);
    if (of == at->end() || !of->is_object()) continue;
    const Json part = of->value("partial_rotary_factor", Json());
    of->erase("partial_rotary_factor");
    root[name] = part.is_null() ? Json(1.0) : part;
  }
}

void refuse_stretched_windows(const Json& root, const std::string& place) {
  const Json scaling = root.value("rope_scaling", Json()), types = root.value("yarn_only_types", Json());
  if (!scaling.is_object() || scaling.empty()) return;
  const Json list = root.value("layer_types", Json());
  if (types == Json::array({"full_attention"}) || !list.is_array() ||
      std::find(list.begin(), list.end(), kWindowStep) == list.end())
    return;
  config_error(
      "{}: 'yarn_only_types' is {}, accepted: [\"full_attention\"]: positions of layers with a window are not "
      "stretched",
      place, formats::shown(types));
}

void rewrite_step3p5(Json& root, const std::string& place) {
  for (const char* name : {kWindowTheta, kPart, kWindowPart}) {
    if (root.contains(name)) config_error("{}: '{}' is no key of Step-3.5", place, name);
  }
  join_names(root, place,
             {{"num_key_value_heads", "num_attention_groups"},
              {"n_routed_experts", "moe_num_experts"},
              {"num_local_experts", "moe_num_experts"},
              {"num_experts_per_tok", "moe_top_k"},
              {"share_expert_dims", "share_expert_dim"}});
  trim(root);
  const Json types = root.value("layer_types", Json());
  if (types.is_null() || (types.is_array() && std::find(types.begin(), types.end(), kWindowStep) == types.end()))
    root["sliding_window"] = nullptr;  // no layer has it
  name_layers_step3p5(root, place);
  read_other_setting(root, place);
  refuse_stretched_windows(root, place);
  take_parts(root);
  split(root, place, "partial_rotary_factors", kPart, kWindowPart);
  split(root, place, "rope_theta", "rope_theta", kWindowTheta);
  flatten_rotation_by_layer(root, place, kWindowTheta);
}

// Layers with a window have positions of their own, in the words of the others where the file has none of theirs.
void read_rotation(const JsonKeys& keys, ModelConfig& c) {
  c.partial_rotary_factor = keys.number(kPart, 1);
  read_rope(keys, c);
  if (c.sliding_window == 0) return;
  c.window_rope_theta = keys.number(kWindowTheta, c.rope_theta);
  c.window_rotary_factor = keys.number(kWindowPart, c.partial_rotary_factor);
}

template <class Of>
Written by_layer(const ModelConfig& c, Of of) {
  Written list = Written::array();
  for (int64_t l = 0; l < c.num_hidden_layers; ++l) list.push_back(of(l));
  return list;
}

PublishedKey rope_theta_by_layer() {
  return {.name = "rope_theta", .ours = "rope_theta", .read = read_rotation, .write = [](const ModelConfig& c) {
            return by_layer(c, [&](int64_t l) { return c.has_window(l) ? c.window_rope_theta : c.rope_theta; });
          }};
}
PublishedKey parts_by_layer() {  // read with rope_theta
  const auto write = [](const ModelConfig& c) {
    return by_layer(c,
                    [&](int64_t l) { return c.has_window(l) ? c.window_rotary_factor : c.partial_rotary_factor; });
  };
  return read_elsewhere("partial_rotary_factors", write, "partial_rotary_factor");
}
PublishedKey stretched_types() {
  return {.name = "yarn_only_types", .write = [](const ModelConfig& c) {
            return c.rope_scaling ? Written::array({"full_attention"}) : Written();
          }};
}

PublishedKey heads_in_windows() {
  return {.name = "attention_other_setting",
          .ours = "window_attention_heads",
          .read =
              [](const JsonKeys& keys, ModelConfig& c) {
                constexpr const char* kHeads = "num_sliding_attention_heads";
                if (keys.find(kHeads) == nullptr || c.sliding_window == 0) return;
                const int64_t heads = keys.whole(kHeads);
                c.window_attention_heads = heads == c.num_attention_heads ? 0 : heads;
              },
          .write =
              [](const ModelConfig& c) {
                if (c.window_attention_heads == 0) return Written();
                return Written{{"attention_type", kWindowStep},
                               {"num_attention_heads", c.window_attention_heads},
                               {"num_attention_groups", c.num_key_value_heads},
                               {"head_dim", c.head_dim}};
              }};
}

// A limit that the layers from one on have, and no layer before it.
PublishedKey limits(const char* name, const char* ours, double ModelConfig::*limit, int64_t ModelConfig::*first) {
  return {.name = name,
          .ours = ours,
          .read =
              [=](const JsonKeys& keys, ModelConfig& c) {
                const Json* list = keys.find(name);
                if (list == nullptr) return;
                std::vector<double> numbers;
                bool is_read = list->is_array() && std::ssize(*list) == c.num_hidden_layers;
                for (const Json& each : is_read ? *list : Json::array()) {
                  is_read = is_read && (each.is_null() || (each.is_number() && each >= 0));
                  numbers.push_back(is_read && each.is_number() ? each.get<double>() : 0);
                }
                const auto from = std::find_if(numbers.begin(), numbers.end(), [](double v) { return v > 0; });
                if (!is_read || std::any_of(from, numbers.end(), [&](double v) { return v != *from; })) {
                  config_error("{}: '{}' is {}: of {} layers the first have 0, and the others one limit",
                               keys.place(), name, formats::shown(*list), c.num_hidden_layers);
                }
                if (from == numbers.end()) return;
                c.*limit = *from;
                c.*first = from - numbers.begin();
              },
          .write =
              [=](const ModelConfig& c) {
                return by_layer(c, [&](int64_t l) { return l >= c.*first ? c.*limit : 0.0; });
              }};
}

PublishedKey layers_with_experts() {
  return {.name = "moe_layers_enum", .write = [](const ModelConfig& c) {
            std::string text;
            for (int64_t l = 0; l < c.num_hidden_layers; ++l)
              if (c.is_moe(l)) text += fmt::format("{}{}", text.empty() ? "" : ",", l);
            return Written(text);
          }};
}

void derive_step3p5(ModelConfig& c) { c.n_shared_experts = 1; }

bool holds_step3p5(const ModelConfig& c) {
  return !c.is_latent() && c.has_experts() && c.attention_gate == AttentionGate::head && c.zero_centered_norms &&
         c.qk_norm && !c.qk_norm_all_heads && c.sigmoid_scores && c.topk_bias && c.norm_topk_prob &&
         c.n_shared_experts == 1 && c.shared_intermediate_size > 0 &&
         (c.sliding_window == 0 || (c.window_rope_theta > 0 && c.window_rotary_factor > 0));
}

std::string spelt_step3p5(std::string name) {
  return respelt(std::move(name), {{".mlp.gate.weight", ".moe.gate.weight"},
                                   {".mlp.gate.e_score_correction_bias", ".moe.router_bias"},
                                   {".mlp.shared_experts.", ".share_expert."}});
}

std::optional<ReleasedPlace> stacked_step3p5(const std::string& name, const std::vector<int64_t>& shape,
                                             int64_t experts, const JoinedRows&) {
  const std::optional<ExpertName> of = expert_name(name);
  if (!of || shape.size() != 2) return std::nullopt;
  if (of->tensor != "gate_proj.weight" && of->tensor != "up_proj.weight" && of->tensor != "down_proj.weight")
    return std::nullopt;
  return ReleasedPlace{.name = std::string(of->layer) + "moe." + std::string(of->tensor),
                       .shape = {experts, shape[0], shape[1]},
                       .first = of->expert * shape[0] * shape[1],
                       .row_step = shape[1],
                       .is_whole = false};
}

// Layers of further tokens, of which each has a head of its own.
bool passed_over_step3p5(std::string_view name, const HasTensor& has) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return false;
  const std::string_view layer = name.substr(0, name.find('.', kLayers.size()));
  return has(std::string(layer) + ".transformer.shared_head.output.weight");
}

ModelConfig base_step3p5() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = c.zero_centered_norms = true;
  c.attention_gate = AttentionGate::head;
  derive_step3p5(c);
  return c;
}

ModelConfig flash_step3p5() {
  ModelConfig c = sized(base_step3p5(), {128896, 4096, 45, 11264, 64, 8, 262144, 128});
  c.first_k_dense_replace = 3;
  c.rms_norm_eps = 1e-5;
  c.rope_theta = 5e6;
  c.partial_rotary_factor = 0.5;
  c.rope_scaling = model::RopeScaling{.factor = 2,
                                      .original_max_position_embeddings = 131072,
                                      .type = model::RopeType::llama3,
                                      .low_freq_factor = 1,
                                      .high_freq_factor = 32};
  c.sliding_window = 512;
  c.full_attention_interval = 4;
  c.full_attention_offset = 1;
  c.window_attention_heads = 96;
  c.window_rope_theta = 1e4;
  c.window_rotary_factor = 1;
  c.n_routed_experts = 288;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = c.shared_intermediate_size = 1280;
  c.routed_scaling_factor = 3;
  c.experts_limit = 7;
  c.experts_limit_layer = 43;
  c.mlp_limit = 16;
  c.mlp_limit_layer = 44;
  return c;
}

}  // namespace

Family step3p5() {
  Family f = grouped_family("Step3p5ForCausalLM", "step3p5", 1e-5, base_step3p5());
  drop_keys(f, {"rope_theta"});
  for (PublishedKey& each : f.keys) {
    if (each.name == "head_dim") each = key("head_dim");
    if (each.name == "num_key_value_heads") each = key("num_attention_groups", "num_key_value_heads");
  }
  add_keys(f, window_of_all_but_every_nth(0, "", 4, 0, 1));
  add_keys(
      f,
      {
          rope_theta_by_layer(),
          parts_by_layer(),
          stretched_types(),
          heads_in_windows(),
          mlp_layer_types_key(3),
          layers_with_experts(),
          key("moe_num_experts", "n_routed_experts", 288),
          key("moe_top_k", "num_experts_per_tok", 8),
          key("moe_intermediate_size", "moe_intermediate_size", 1280),
          key("share_expert_dim", "shared_intermediate_size", 1280),
          key("moe_router_scaling_factor", "routed_scaling_factor", 1.0),
          limits("swiglu_limits", "experts_limit", &ModelConfig::experts_limit, &ModelConfig::experts_limit_layer),
          limits("swiglu_limits_shared", "mlp_limit", &ModelConfig::mlp_limit, &ModelConfig::mlp_limit_layer),
          fixed("use_head_wise_attn_gate", true),
          fixed("zero_centered", true),
          fixed("use_qk_norm", true),
          fixed("use_moe_router_bias", true),
          fixed("moe_router_activation", "sigmoid"),
          fixed("norm_expert_weight", true),
          fixed("need_fp32_gate", true),
          fixed("num_nextn_predict_layers", 0),
      });
  f.said = {"window_rope_theta",       "window_rotary_factor",  "experts_limit_layer",
            "mlp_limit_layer",         "n_shared_experts",      "max_window_layers",
            "full_attention_interval", "full_attention_offset", "norm_topk_prob"};
  f.only = {
      is("use_head_wise_attn_gate", true, "attention has a gate a head"),
      is("zero_centered", true, "norms multiply by 1 + their weight"),
      is("use_qk_norm", true, "queries and keys are normed"),
      is("use_moe_router_bias", true, "the choice has a bias"),
      is("moe_router_activation", "sigmoid", "scores are sigmoids"),
      is("norm_expert_weight", true, "gates sum to one before scaling"),
      is("att_impl_type", "GQA", "attention is grouped"),
      is("use_rope_layers", Json::array(), "every layer has rotary positions"),
      is("use_bidirectional_attention", false, "attention in both directions is not built"),
      off("use_mfa", "another attention is not built"),
      off("sink", "sinks are not built"),
      above_zero("share_expert_dim"),
      {"query_pre_attn_scalar", [](const Json& v, const Json& root) { return v == root.value("head_dim", Json()); },
       "scores are divided by the root of 'head_dim'"}};
  f.read_besides = {"num_key_value_heads",
                    "n_routed_experts",
                    "num_local_experts",
                    "num_experts_per_tok",
                    "share_expert_dims",
                    "num_sliding_attention_heads",
                    "per_layer_config",
                    "need_fp32_gate",
                    "num_nextn_predict_layers",
                    "mtp_layer_types",
                    "mtp_mlp_layer_types",
                    "max_seq_len",
                    "use_moe",
                    "moe_layer_offset",
                    "moe_every_n_layer",
                    "output_router_logits",
                    "moe_dynamic_exp_p",
                    kWindowTheta,
                    kPart,
                    kWindowPart};
  f.rewrite = rewrite_step3p5;
  f.adopt = adopt_router_loss;
  f.derive = derive_step3p5;
  f.holds = holds_step3p5;
  f.spelt = spelt_step3p5;
  f.stacked = stacked_step3p5;
  f.passed_over = passed_over_step3p5;
  f.presets = {{"step-3.5-flash", flash_step3p5()}};
  return f;
}

}  // namespace heddle::config
