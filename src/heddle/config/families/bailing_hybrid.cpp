// Ling 3.0 (Ling-3.0-flash, Ling-3.0-tiny): most layers have Kimi Delta Attention with bounded decays, every so
// many-th DeepSeek-V3's latent attention with a gate a head on its output. Router and experts are DeepSeek-V3's.
//
// The release's lists of limits cut SwiGLU in the last layers, as the model was trained and as SGLang and vLLM run
// it. Transformers leaves them out. Layers of further tokens are passed over, as Transformers does.
//
// Sources: BailingHybridConfig and modeling_bailing_hybrid.py of Transformers 5, gone through key by key; keys of
// the config.json files released with Ling-3.0-tiny and -flash. The limits of -flash are those of SGLang's tests.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/families/expert_names.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/layer_kinds.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using model::Recurrence;
using Written = nlohmann::ordered_json;

constexpr int64_t kGroup = 6, kDense = 2;  // layers of a group, and those without experts, where no key says it
constexpr double kBound = -5;
constexpr const char *kExpertLimits = "expert_swiglu_limit_list", *kSharedLimits = "share_expert_swiglu_limit_list";

// A word a layer from the size of a group. The release gives attention to layers behind the last whole group, too,
// and Transformers does not: a file with such layers must say it in words.
void name_layers_bailing(Json& root, const std::string& place) {
  if (!root.value("layer_types", Json()).is_null()) return;
  const Json group = root.value("layer_group_size", Json(kGroup)), layers = root.value("num_hidden_layers", Json());
  constexpr int64_t kMostLayers = 4096;
  if (!layers.is_number_integer() || layers < 1 || layers > kMostLayers) return;  // refused where it is read
  if (!group.is_number_integer() || group < 1)
    config_error("{}: 'layer_group_size' is {}, a whole number above 0 is expected", place, formats::shown(group));
  const int64_t count = layers.get<int64_t>(), each = group.get<int64_t>();
  if (count % each != 0) {
    config_error("{}: {} layers are no whole groups of 'layer_group_size' = {}: 'layer_types' must say their kinds",
                 place, count, each);
  }
  Json words = Json::array();
  for (int64_t l = 0; l < count; ++l) words.push_back((l + 1) % each == 0 ? "full_attention" : "linear_attention");
  root["layer_types"] = words;
}

// The release's code turns qk_rope_head_dim elements whatever this part is. Files repeat it in the rotary keys.
void drop_part_of_heads(Json& root) {
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const auto at = root.find(name);
    if (at == root.end() || !at->is_object()) continue;
    if (at->value("rope_type", at->value("type", Json("default"))) != "default") return;
    at->erase("partial_rotary_factor");
  }
  root.erase("partial_rotary_factor");
}

void rewrite_bailing_hybrid(Json& root, const std::string& place) {
  join_names(root, place,
             {{"model_max_length", "max_position_embeddings"},
              {"moe_renormalize", "norm_topk_prob"},
              {"num_expert_group", "n_group"},
              {"num_local_experts", "num_experts"},
              {"num_experts_per_token", "num_experts_per_tok"},
              {"n_shared_experts", "num_shared_experts"},
              {"num_mtp_layers", "num_nextn_predict_layers"}});
  name_layers_bailing(root, place);
  drop_part_of_heads(root);
  // Words say which layers are dense, whatever stands beside them.
  const Json types = root.value("mlp_layer_types", Json());
  if (!types.is_array()) return;
  const auto other = std::find_if(types.begin(), types.end(), [](const Json& type) { return type != "dense"; });
  root["first_k_dense_replace"] = other - types.begin();
}

// The release's list is of shared experts alone, and the key here of dense layers, too.
void refuse_limits_of_dense_layers(const Json& root, const std::string& place) {
  const Json list = root.value(kSharedLimits, Json()), dense = root.value("first_k_dense_replace", Json(kDense));
  if (!list.is_array() || !dense.is_number_integer()) return;
  for (size_t l = 0; l < list.size() && dense > l; ++l) {
    if (list[l] != 0)
      config_error("{}: '{}' has {} for layer {}, which has no experts", place, kSharedLimits,
                   formats::shown(list[l]), l);
  }
}

void adopt_bailing_hybrid(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  if (root.value("heddle", Json()).is_null()) refuse_limits_of_dense_layers(root, place);
  if (warnings == nullptr) return;
  if (const Json further = root.value("num_nextn_predict_layers", Json(0)); !further.is_null() && further != 0) {
    warnings->push_back(
        fmt::format("{}: layers that predict further tokens are not built for this family: taken as 0", place));
  }
  const auto cuts = [&](const char* name) {
    const Json list = root.value(name, Json());
    return list.is_array() && std::any_of(list.begin(), list.end(), [](const Json& v) { return v != 0; });
  };
  if (cuts(kExpertLimits) || cuts(kSharedLimits))
    warnings->push_back(fmt::format("{}: '{}' and '{}' cut SwiGLU; Transformers leaves them out", place,
                                    kExpertLimits, kSharedLimits));
}

void read_layers_bailing(const JsonKeys& keys, ModelConfig& c) {
  const int64_t width = keys.whole("linear_head_dim", keys.whole("head_dim", 128));
  c.linear_key_head_dim = c.linear_value_head_dim = width;
  c.linear_num_key_heads = c.linear_num_value_heads = keys.whole("linear_num_heads", c.num_attention_heads);
  c.linear_conv_kernel_dim = keys.whole("linear_conv_kernel_dim", keys.whole("short_conv_kernel_size", 4));
  constexpr int64_t kMostLayers = 4096;
  if (c.num_hidden_layers < 1 || c.num_hidden_layers > kMostLayers) return;  // refused with the bounds of keys
  set_layer_kinds(keys, attention_by_words(keys, c.num_hidden_layers), Recurrence::kimi_delta, c);
}

Written write_group(const ModelConfig& c) {
  return c.full_attention_interval > 0 ? c.full_attention_interval : c.num_hidden_layers + 1;
}

// A step of limits: from a layer on it is so much, and 0 before the first.
struct LimitStep {
  double ModelConfig::*limit;
  int64_t ModelConfig::*first;
};

// A limit a layer. Those behind the last layer are of layers of further tokens.
PublishedKey limits_bailing(const char* name, const char* ours, std::vector<LimitStep> steps,
                            double (ModelConfig::*of)(int64_t) const) {
  return {.name = name,
          .ours = ours,
          .read =
              [=](const JsonKeys& keys, ModelConfig& c) {
                const Json* list = keys.find(name);
                if (list == nullptr) return;
                const auto refuse = [&] {
                  config_error("{}: '{}' is {}: of {} layers the first have 0, and those after them {}",
                               keys.place(), name, formats::shown(*list), c.num_hidden_layers,
                               steps.size() == 1 ? "one limit" : "one limit, or one and then another");
                };
                if (!list->is_array() || std::ssize(*list) < c.num_hidden_layers) refuse();
                double last = 0;
                size_t next = 0;
                for (int64_t l = 0; l < c.num_hidden_layers; ++l) {
                  const Json& value = (*list)[static_cast<size_t>(l)];
                  if (!value.is_number() || value < 0) refuse();
                  if (value == last) continue;
                  if (next == steps.size() || value == 0) refuse();
                  c.*steps[next].limit = last = value.get<double>();
                  c.*steps[next++].first = l;
                }
              },
          .write =
              [=](const ModelConfig& c) {
                if (c.*steps[0].limit == 0) return Written(Written::value_t::discarded);
                Written list = Written::array();
                for (int64_t l = 0; l < c.num_hidden_layers; ++l) list.push_back((c.*of)(l));
                return list;
              }};
}

void read_bound(const JsonKeys& keys, ModelConfig& c) {
  const double bound = keys.number("kda_lower_bound", kBound);
  if (!(bound < 0)) config_error("{}: 'kda_lower_bound' is {}, less than 0 is expected", keys.place(), bound);
  c.linear_decay_least = keys.boolean("kda_safe_gate", true) ? bound : 0;
}

void derive_bailing_hybrid(ModelConfig& c) {
  if (!c.recurs()) model::reset_foreign_keys(c);
}

bool holds_bailing_hybrid(const ModelConfig& c) {
  return c.is_latent() && !c.selects() && c.recurrence == Recurrence::kimi_delta && c.linear_full_gates &&
         c.attention_gate == model::AttentionGate::head;
}

std::string spelt_bailing_hybrid(std::string name) {
  return respelt(std::move(name), {{"model.embed_tokens.", "model.word_embeddings."},
                                   {".self_attn.o_proj.", ".attention.dense."},
                                   {".self_attn.", ".attention."},
                                   {".mlp.gate.e_score_correction_bias", ".mlp.gate.expert_bias"}});
}

std::string also_spelt_bailing_hybrid(std::string name) {
  return respelt(spelt_bailing_hybrid(std::move(name)), {{".attention.dense.", ".attention.o_proj."}});
}

// The release calls the output's map "dense" in latent attention alone.
std::string spelt_beside_bailing_hybrid(std::string name, const HasTensor& has) {
  constexpr std::string_view kOutput = "o_proj.weight";
  const bool recurrent = name.ends_with(kOutput) && has(name.substr(0, name.size() - kOutput.size()) + "A_log");
  return recurrent ? also_spelt_bailing_hybrid(std::move(name)) : spelt_bailing_hybrid(std::move(name));
}

// Layers of further tokens stand behind the others.
bool predicts_further_bailing(std::string_view name, const HasTensor& has) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers) || !has("model.word_embeddings.weight")) return false;
  const size_t end = name.find('.', kLayers.size());
  return end != std::string_view::npos && has(std::string(name.substr(0, end)) + ".eh_proj.weight");
}

ModelConfig base_bailing_hybrid() {
  ModelConfig c;
  c.recurrence = Recurrence::kimi_delta;
  c.linear_full_gates = true;
  c.linear_decay_least = kBound;
  c.attention_gate = model::AttentionGate::head;
  c.rope_theta = 6000000;
  return c;
}

ModelConfig sized_bailing_hybrid(int64_t hidden, int64_t layers, int64_t heads, int64_t mlp, int64_t group) {
  ModelConfig c = base_bailing_hybrid();
  c.vocab_size = 157184;
  c.hidden_size = hidden;
  c.num_hidden_layers = layers;
  c.intermediate_size = mlp;
  c.num_attention_heads = heads;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = c.v_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.full_attention_interval = group;
  c.linear_num_key_heads = c.linear_num_value_heads = heads;
  c.linear_key_head_dim = c.linear_value_head_dim = 128;
  c.n_group = 8;
  c.topk_group = 4;
  c.routed_scaling_factor = 2.5;
  return c;
}

ModelConfig ling_flash_3() {
  ModelConfig c = sized_bailing_hybrid(2560, 42, 32, 6144, 6);
  c.max_position_embeddings = 262144;
  give_experts(c, {.experts = 512, .chosen = 8, .width = 768});
  c.first_k_dense_replace = 2;
  c.experts_limit = 4;
  c.experts_limit_layer = 35;
  c.mlp_limit = 5;
  c.mlp_limit_layer = 34;
  c.mlp_limit_last = 7;
  c.mlp_limit_last_layer = 40;
  return c;
}

ModelConfig ling_tiny_3() {
  ModelConfig c = sized_bailing_hybrid(1536, 24, 16, 4608, 4);
  c.max_position_embeddings = 131072;
  c.q_lora_rank = 256;
  give_experts(c, {.experts = 128, .chosen = 8, .width = 512});
  c.first_k_dense_replace = 1;
  return c;
}

Only equals(const char* name, const char* other, const char* reason) {
  return {name, [other](const Json& v, const Json& root) { return v == root.value(other, v); }, reason};
}

}  // namespace

Family bailing_hybrid() {
  Family f;
  f.architecture = "BailingHybridForCausalLM";
  f.model_type = "bailing_hybrid";
  f.base = base_bailing_hybrid();
  f.keys = {
      key("vocab_size"),
      key("hidden_size"),
      key("num_hidden_layers"),
      key("intermediate_size"),
      key("first_k_dense_replace", "first_k_dense_replace", kDense),
      fixed("hidden_act", "silu"),
      key("rms_norm_eps", "rms_norm_eps", 1e-6),
      key("initializer_range", "initializer_range", 0.02),
      fixed("tie_word_embeddings", false),
      key("max_position_embeddings", "max_position_embeddings", 262144),
      key("num_attention_heads"),
      {.name = "num_key_value_heads", .write = [](const ModelConfig& c) { return Written(c.num_attention_heads); }},
      {.name = "q_lora_rank",
       .ours = "q_lora_rank",
       .read = [](const JsonKeys& keys, ModelConfig& c) { c.q_lora_rank = keys.whole("q_lora_rank", 0); },
       .write = [](const ModelConfig& c) { return c.q_lora_rank > 0 ? Written(c.q_lora_rank) : Written(nullptr); }},
      key("kv_lora_rank", "kv_lora_rank", 512),
      key("qk_nope_head_dim", "qk_nope_head_dim", 128),
      key("qk_rope_head_dim", "qk_rope_head_dim", 64),
      key("v_head_dim", "v_head_dim", 128),
      fixed("gated_attention_proj_granularity_type", "head_wise"),
      rope_theta_key(),
      rope_scaling_key(),
      {.name = "layer_types", .ours = "recurrence", .read = read_layers_bailing, .write = words_of_layers},
      read_elsewhere("layer_group_size", write_group),
      read_elsewhere("head_dim", [](const ModelConfig& c) { return Written(c.linear_key_head_dim); }),
      read_elsewhere("linear_num_heads",
                     [](const ModelConfig& c) {
                       return c.linear_num_key_heads != c.num_attention_heads
                                  ? Written(c.linear_num_key_heads)
                                  : Written(Written::value_t::discarded);
                     }),
      read_elsewhere("short_conv_kernel_size",
                     [](const ModelConfig& c) { return Written(c.linear_conv_kernel_dim); }),
      fixed("no_kda_lora", true),
      {.name = "kda_safe_gate",
       .ours = "linear_decay_least",
       .read = read_bound,
       .write = [](const ModelConfig& c) { return Written(c.linear_decay_least < 0); }},
      read_elsewhere(
          "kda_lower_bound",
          [](const ModelConfig& c) { return Written(c.linear_decay_least < 0 ? c.linear_decay_least : kBound); }),
      key("num_experts", "n_routed_experts", 512),
      key("num_experts_per_tok", "num_experts_per_tok", 8),
      key("num_shared_experts", "n_shared_experts", 1, 0),
      key("moe_intermediate_size", "moe_intermediate_size", 768),
      key("n_group", "n_group", 8),
      key("topk_group", "topk_group", 4),
      key("norm_topk_prob", "norm_topk_prob", true),
      fixed("score_function", "sigmoid"),
      fixed("moe_router_enable_expert_bias", true),
      key("routed_scaling_factor", "routed_scaling_factor", 2.5),
      fixed("num_nextn_predict_layers", 0),
      limits_bailing(kExpertLimits, "experts_limit",
                     {{&ModelConfig::experts_limit, &ModelConfig::experts_limit_layer}},
                     &ModelConfig::experts_limit_of),
      limits_bailing(kSharedLimits, "mlp_limit",
                     {{&ModelConfig::mlp_limit, &ModelConfig::mlp_limit_layer},
                      {&ModelConfig::mlp_limit_last, &ModelConfig::mlp_limit_last_layer}},
                     &ModelConfig::mlp_limit_of),
  };
  add_keys(f, layer_kind_keys());
  f.said = {"linear_num_key_heads",  "linear_num_value_heads", "linear_key_head_dim",
            "linear_value_head_dim", "linear_conv_kernel_dim", "experts_limit_layer",
            "mlp_limit_layer",       "mlp_limit_last",         "mlp_limit_last_layer"};
  f.only = {
      is("gated_attention_proj_granularity_type", "head_wise", "the gate of attention is one a head"),
      is("no_kda_lora", true, "decays and gate of recurrent layers are made by one map each"),
      off("tie_word_embeddings", "Transformers ties no head of this family"),
      off("use_kda_lora", "decays and gate of recurrent layers are made by one map each"),
      is("linear_attention", "kda", "recurrent layers have Kimi Delta Attention"),
      is("rope_interleave", true, "neighbours are turned"),
      off("use_mla_nope", "latent attention turns its queries and keys"),
      is("score_function", "sigmoid", "scores are sigmoids"),
      is("scoring_func", "sigmoid", "scores are sigmoids"),
      is("topk_method", "noaux_tc", "only 'noaux_tc' is built"),
      is("moe_router_enable_expert_bias", true, "the choice has a bias"),
      off("use_bias", "biases are not built"),
      off("use_qkv_bias", "biases are not built"),
      off("value_norm", "norms of values are not built"),
      off("up_proj_norm", "norms of ups are not built"),
      off("scale_router_input", "a scale of the router's input is not built"),
      off("use_nGPT", "normalised weights are not built"),
      off("embedding_dropout", "dropout is not built"),
      off("output_dropout", "dropout is not built"),
      is("group_norm_size", 1, "each head is normed"),
      equals("num_key_value_heads", "num_attention_heads", "latent attention has as many as heads"),
      equals("moe_shared_expert_intermediate_size", "moe_intermediate_size",
             "shared experts are as wide as the others"),
      equals("rotary_dim", "qk_rope_head_dim", "it must equal qk_rope_head_dim"),
      {"num_kv_heads_for_linear_attn",
       [](const Json& v, const Json& root) { return v == 0 || v == root.value("num_attention_heads", v); },
       "recurrent layers have as many as heads"},
      {"mlp_layer_types",
       [](const Json& types, const Json& root) {
         if (!types.is_array() || types.size() != root.value("num_hidden_layers", Json())) return false;
         const auto dense = [](const Json& type) { return type == "dense"; };
         return std::all_of(std::find_if_not(types.begin(), types.end(), dense), types.end(),
                            [](const Json& type) { return type == "sparse"; });
       },
       "the first layers may be dense, the others are sparse"},
  };
  f.read_besides = {"linear_head_dim",   "linear_conv_kernel_dim",
                    "qk_head_dim",       "model_max_length",
                    "moe_renormalize",   "num_expert_group",
                    "num_local_experts", "num_experts_per_token",
                    "n_shared_experts",  "num_mtp_layers",
                    "router_dtype",      "mtp_loss_scaling_factor",
                    "mtp_use_kda",       "seq_aux",
                    "linear_silu",       "use_qk_norm",
                    "use_rmsnorm",       "partial_rotary_factor"};
  f.rewrite = rewrite_bailing_hybrid;
  f.adopt = adopt_bailing_hybrid;
  f.derive = derive_bailing_hybrid;
  f.holds = holds_bailing_hybrid;
  f.spelt = spelt_bailing_hybrid;
  f.also_spelt = also_spelt_bailing_hybrid;
  f.spelt_beside = spelt_beside_bailing_hybrid;
  f.passed_over = predicts_further_bailing;
  f.presets = {{"ling-3.0-flash", ling_flash_3()}, {"ling-3.0-tiny", ling_tiny_3()}};
  return f;
}

// The name of the release's own code.
Family bailing_moe_v3() {
  Family f = bailing_hybrid();
  f.architecture = "BailingMoeV3ForCausalLM";
  f.holds = [](const ModelConfig&) { return false; };
  f.presets.clear();
  return f;
}

}  // namespace heddle::config
