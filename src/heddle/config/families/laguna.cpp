// Laguna (Poolside): most layers have a window, more heads of queries and rotary positions of their own.
// Attention's output has a gate a head or an element, ln(1 + e^x). DeepSeek-V3's router, whose logits may have a
// cap, beside one shared expert. Mellum 2 (JetBrains) is Qwen3-MoE with such windows and positions. Its layer of a
// further token
// ("mtp.") is skipped.
//
// Sources: LagunaConfig, MellumConfig and their models of Transformers 5, gone through key by key; the config.json
// files released with Laguna-XS.2 and Mellum2-12B-A2.5B-Base (arXiv 2605.31268).
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/turned_windows.h"
#include "heddle/config/families/window_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::AttentionBias;
using model::AttentionGate;
using model::ModelConfig;
using Written = nlohmann::ordered_json;

constexpr const char* kHeadsLaguna = "num_attention_heads_per_layer";
constexpr const char *kWindowLaguna = "sliding_attention", *kFullLaguna = "full_attention";
// The rewritten file has what rotary keys say by kind of layer under these names.
constexpr const char *kThetaLaguna = "window_rope_theta", *kPartLaguna = "window_rotary_factor",
                     *kFullPartLaguna = "full_rotary_factor";

bool has_windows_laguna(const Json& root) {
  const Json types = root.value("layer_types", Json());
  return types.is_array() && std::find(types.begin(), types.end(), kWindowLaguna) != types.end();
}

// Each kind of layer says its part of a head. A length beside the kinds is that of full attention.
void flatten_laguna(Json& root, const std::string& place) {
  const auto at = root.find("rope_parameters");
  if (at != root.end() && at->is_object()) {
    const char* length = "original_max_position_embeddings";
    const auto full = at->find(kFullLaguna);
    if (full != at->end() && full->is_object() && full->value(length, Json()) == at->value(length, Json()))
      at->erase(length);
    for (const auto& [kind, name] : {std::pair{kFullLaguna, kFullPartLaguna}, {kWindowLaguna, kPartLaguna}}) {
      const auto of = at->find(kind);
      if (of == at->end() || !of->is_object()) continue;
      const Json part = of->value("partial_rotary_factor", Json());
      of->erase("partial_rotary_factor");
      root[name] = part.is_null() ? Json(1.0) : part;
    }
  }
  flatten_rotation_by_layer(root, place, kThetaLaguna);
}

void rewrite_laguna(Json& root, const std::string& place) {
  for (const char* name : {kThetaLaguna, kPartLaguna, kFullPartLaguna}) {
    if (root.contains(name)) config_error("{}: '{}' is no key of this family", place, name);
  }
  name_num_experts(root, place);
  if (!has_windows_laguna(root)) root["sliding_window"] = nullptr;  // no layer has it
  const Json rotary = root.value("rope_parameters", Json());
  if (rotary.is_object() && !rotary.empty()) return flatten_laguna(root, place);
  for (const char* name : {"rope_theta", "rope_scaling"}) {
    if (!root.value(name, Json()).is_null())
      config_error("{}: '{}' stands outside of 'rope_parameters', which say it by kind of layer", place, name);
  }
}

// The numbers stand for what the file leaves out. part 0: whole heads turn.
struct RotationLaguna {
  double theta, part, window_theta, window_part;
};

PublishedKey rotation_laguna(const RotationLaguna& standard) {
  const auto read = [=](const JsonKeys& keys, ModelConfig& c) {
    const bool given = keys.find("rope_theta") != nullptr || keys.find(kThetaLaguna) != nullptr;
    const bool whole = standard.part == 0;
    const double part = keys.number(kFullPartLaguna, given || whole ? 1 : standard.part);
    const double window_part = keys.number(kPartLaguna, given || whole ? 1 : standard.window_part);
    if (whole && (part != 1 || window_part != 1))
      config_error("{}: 'rope_parameters' turn a part {} of heads, accepted: 1", keys.place(), part * window_part);
    c.rope_theta = standard.theta;
    c.partial_rotary_factor = part;
    read_rope(keys, c);
    if (c.sliding_window == 0) return;
    c.window_rope_theta = keys.number(kThetaLaguna, standard.window_theta);
    c.window_rotary_factor = whole ? 0 : window_part;
  };
  const auto write = [whole = standard.part == 0](const ModelConfig& c) {
    const auto of = [=](const ModelConfig& rotation) {
      Written keys = rotation.rope_scaling ? rope_scaling_json(rotation) : Written();
      keys["rope_type"] = rotation.rope_scaling ? word_of(rotation.rope_scaling->type) : "default";
      keys["rope_theta"] = rotation.rope_theta;
      if (!whole) keys["partial_rotary_factor"] = rotation.partial_rotary_factor;
      return keys;
    };
    Written kinds{{kFullLaguna, of(c)}};
    if (c.has_window_rotation()) kinds[kWindowLaguna] = of(c.with_rotation_of_windows());
    return kinds;
  };
  return {.name = "rope_parameters", .ours = "rope_theta", .read = read, .write = write};
}

// Keys of windows and of positions, of every layer with a window and of the others.
void add_kinds_of_layers(Family& f, int64_t window, const RotationLaguna& standard) {
  std::erase_if(f.keys, [](const PublishedKey& each) { return each.name.starts_with("rope_"); });
  add_keys(f, window_of_all_but_every_nth(window, "", 4));
  f.keys.push_back(rotation_laguna(standard));
  f.said = {"partial_rotary_factor", "window_rope_theta", "window_rotary_factor"};
  f.read_besides = {"num_local_experts", "output_router_logits",  "router_aux_loss_coef",
                    "rope_theta",        "rope_scaling",          kThetaLaguna,
                    kPartLaguna,         "first_k_dense_replace", kFullPartLaguna};
  f.rewrite = rewrite_laguna;
  f.adopt = adopt_router_loss;
}

// A number of heads for each layer: one for those with a window, one for the others.
PublishedKey heads_by_layer_laguna() {
  const auto read = [](const JsonKeys& keys, ModelConfig& c) {
    const Json* list = keys.find(kHeadsLaguna);
    if (list == nullptr) return;
    bool is_read = list->is_array() && std::ssize(*list) == c.num_hidden_layers;
    int64_t full = 0, window = 0;
    for (int64_t l = 0; is_read && l < c.num_hidden_layers; ++l) {
      const Json& each = (*list)[static_cast<size_t>(l)];
      int64_t& heads = c.has_window(l) ? window : full;
      is_read = each.is_number_integer() && each > 0 && (heads == 0 || heads == each);
      if (is_read) heads = each.get<int64_t>();
    }
    if (!is_read) {
      config_error(
          "{}: '{}' is {}: a number for each of {} layers is expected, alike for all with a window and for "
          "all others",
          keys.place(), kHeadsLaguna, formats::shown(*list), c.num_hidden_layers);
    }
    if (full > 0) c.num_attention_heads = full;
    c.window_attention_heads = window == c.num_attention_heads ? 0 : window;
  };
  const auto write = [](const ModelConfig& c) {
    Written list = Written::array();
    for (int64_t l = 0; l < c.num_hidden_layers; ++l) list.push_back(c.heads_of(l));
    return list;
  };
  return {.name = kHeadsLaguna, .ours = "window_attention_heads", .read = read, .write = write};
}

PublishedKey gating_laguna() {
  const auto read = [](const JsonKeys& keys, ModelConfig& c) {
    const Json* value = keys.find("gating");
    const bool by_head = value == nullptr || *value == true || *value == "per-head";
    if (!by_head && *value != "per-element")
      config_error("{}: 'gating' is {}, accepted: true, \"per-head\" and \"per-element\"", keys.place(),
                   formats::shown(*value));
    c.attention_gate = by_head ? AttentionGate::head : AttentionGate::element_apart;
  };
  const auto write = [](const ModelConfig& c) {
    return Written(c.attention_gate == AttentionGate::head ? "per-head" : "per-element");
  };
  return {.name = "gating", .ours = "attention_gate", .read = read, .write = write};
}

// Numbers of the dense layers, which "mlp_layer_types" has as words.
bool repeats_dense_layers(const Json& list, const Json& root) {
  const Json words = root.value("mlp_layer_types", Json());
  Json dense = Json::array();
  for (size_t l = 0; words.is_array() && l < words.size(); ++l)
    if (words[l] == "dense") dense.push_back(l);
  return list == (words.is_array() ? dense : Json::array({0}));
}

bool is_like_gating(const Json& list, const Json& root) {
  const Json gating = root.value("gating", Json(true));
  const Json word = gating == true ? Json("per-head") : gating;
  return list.is_array() && std::all_of(list.begin(), list.end(), [&](const Json& each) { return each == word; });
}

bool has_parts_laguna(const ModelConfig& c) {
  return !c.is_latent() && c.has_experts() && c.qk_norm && !c.qk_norm_all_heads && !c.zero_centered_norms &&
         c.norm_places == model::NormPlaces::before && c.attention_bias != AttentionBias::qkv && c.n_group == 1 &&
         !c.bias_on_logits && c.num_nextn_predict_layers == 0;
}

bool holds_laguna(const ModelConfig& c) {
  return has_parts_laguna(c) && c.attention_gate_softplus && c.attention_gate != AttentionGate::element &&
         c.sigmoid_scores && c.topk_bias && c.norm_topk_prob && c.n_shared_experts == 1 &&
         c.shared_intermediate_size > 0 && !c.shared_expert_gate &&
         (c.sliding_window == 0 || (c.window_rope_theta > 0 && c.window_rotary_factor > 0));
}

bool holds_mellum(const ModelConfig& c) {
  return has_parts_laguna(c) && c.attention_gate == AttentionGate::none && !c.sigmoid_scores && !c.topk_bias &&
         c.n_shared_experts == 0 && c.routed_scaling_factor == 1 && c.window_attention_heads == 0 &&
         !c.attention_sinks && c.sliding_window > 0 && c.window_rope_theta > 0 && c.partial_rotary_factor == 1 &&
         c.window_rotary_factor == 0;
}

std::string spelt_laguna(std::string name) {
  return respelt(std::move(name), {{".mlp.gate.e_score_correction_bias", ".mlp.experts.e_score_correction_bias"},
                                   {".mlp.shared_experts.", ".mlp.shared_expert."}});
}

void adopt_mellum(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  adopt_router_loss(root, place, warnings);
  skip_prediction_layers(root, place, {"num_nextn_predict_layers", "num_mtp_layers"}, warnings);
}

ModelConfig base_laguna() {
  ModelConfig c = grouped_base();
  c.qk_norm = c.sigmoid_scores = c.topk_bias = true;
  c.attention_gate = AttentionGate::head;
  c.attention_gate_softplus = true;
  c.n_shared_experts = 1;
  return c;
}

ModelConfig laguna_xs() {
  ModelConfig c = sized(base_laguna(), {100352, 2048, 40, 8192, 48, 8, 131072, 128});
  c.first_k_dense_replace = 1;
  c.sliding_window = 512;
  c.full_attention_interval = 4;
  c.full_attention_offset = 1;
  c.window_attention_heads = 64;
  c.rope_theta = 5e5;
  c.partial_rotary_factor = 0.5;
  c.rope_scaling = model::RopeScaling{.factor = 32, .beta_fast = 64, .attention_factor = 1};
  c.window_rope_theta = 1e4;
  c.window_rotary_factor = 1;
  give_experts(c, {.experts = 256, .chosen = 8, .width = 512});
  c.shared_intermediate_size = 512;
  c.routed_scaling_factor = 2.5;
  return c;
}

ModelConfig base_mellum() {
  ModelConfig c = grouped_base();
  c.qk_norm = true;
  return c;
}

ModelConfig mellum2() {
  ModelConfig c = sized(base_mellum(), {98304, 2304, 28, 7168, 32, 4, 131072, 128});
  c.first_k_dense_replace = 0;
  c.sliding_window = 1024;
  c.full_attention_interval = 4;
  c.rope_theta = c.window_rope_theta = 5e5;
  c.rope_scaling = model::RopeScaling{
      .factor = 16, .original_max_position_embeddings = 8192, .attention_factor = 1.2772588722239782};
  give_experts(c, {.experts = 64, .chosen = 8, .width = 896});
  return c;
}

}  // namespace

Family laguna() {
  Family f = grouped_family("LagunaForCausalLM", "laguna", 1e-6, base_laguna());
  replace_keys(f, {key("head_dim", "head_dim", 128), key("num_key_value_heads", "num_key_value_heads", 8)});
  add_kinds_of_layers(f, 512, {5e5, 0.5, 1e4, 1});
  add_keys(f, {
                  heads_by_layer_laguna(),
                  attention_bias_key(AttentionBias::all),
                  gating_laguna(),
                  mlp_layer_types_key(1),
                  key("num_experts", "n_routed_experts", 256),
                  key("num_experts_per_tok", "num_experts_per_tok", 8),
                  key("moe_intermediate_size", "moe_intermediate_size", 512),
                  key("shared_expert_intermediate_size", "shared_intermediate_size", 512),
                  key("moe_routed_scaling_factor", "routed_scaling_factor", 1.0),
                  key("moe_router_logit_softcapping", "router_logit_cap", 0.0),
              });
  f.said.insert(f.said.end(), {"norm_topk_prob", "n_shared_experts", "n_group", "topk_group"});
  f.only = {off("moe_apply_router_weight_on_input", "gates are factors of what experts make"),
            off("swa_attention_sink_enabled", "sinks are not built"),
            off("qkv_bias", "biases of queries, keys and values alone are not built"),
            is("norm_topk_prob", true, "gates sum to one before scaling"),
            is("decoder_sparse_step", 1, "every layer after the dense ones has experts"),
            {"mlp_only_layers", repeats_dense_layers, "it says something else than 'mlp_layer_types'"},
            {"gating_types", is_like_gating, "each layer has the gate of 'gating'"},
            never("swa_rope_parameters", "'rope_parameters' say those of layers with a window"),
            above_zero("shared_expert_intermediate_size")};
  f.holds = holds_laguna;
  f.spelt = spelt_laguna;
  f.presets = {{"laguna-xs.2", laguna_xs()}};
  return f;
}

Family mellum() {
  Family f = grouped_family("MellumForCausalLM", "mellum", 1e-6, base_mellum());
  replace_keys(f, {key("head_dim", "head_dim", 128), key("num_key_value_heads", "num_key_value_heads", 4)});
  add_kinds_of_layers(f, 1024, {5e5, 0, 1e4, 0});
  add_keys(f, {
                  attention_bias_key(AttentionBias::all),
                  unwritten_window_switch(),
                  mlp_layer_types_key(0),
                  key("num_experts", "n_routed_experts", 64),
                  key("num_experts_per_tok", "num_experts_per_tok", 8),
                  key("moe_intermediate_size", "moe_intermediate_size", 896),
                  key("norm_topk_prob", "norm_topk_prob", true),
              });
  f.only = {is("use_sliding_window", true, "'layer_types' say which layers have a window"),
            is("decoder_sparse_step", 1, "every layer after the dense ones has experts"),
            is("mlp_only_layers", Json::array(), "'mlp_layer_types' say which layers are dense")};
  f.read_besides.insert(f.read_besides.end(),
                        {"num_nextn_predict_layers", "num_mtp_layers", "mtp_layer_types", "mtp_mlp_layer_types"});
  f.adopt = adopt_mellum;
  f.holds = holds_mellum;
  f.passed_over = [](std::string_view name, const HasTensor&) { return name.starts_with("mtp."); };
  f.presets = {{"mellum2-12b-a2.5b", mellum2()}};
  return f;
}

}  // namespace heddle::config
