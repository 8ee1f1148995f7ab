#include "heddle/config/model_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/output_file.h"
#include "heddle/config/config_keys.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using nlohmann::json;

constexpr int64_t kMostConfigBytes = 1 << 20;
constexpr int kMostNesting = 16;

// The keys of one object, each asked for with the type that it must have.
class Keys {
 public:
  Keys(const json& object, std::string place, std::string prefix)
      : object_(object), place_(std::move(place)), prefix_(std::move(prefix)) {
    if (!object.is_object()) config_error("{}: {} is {}, an object is expected", place_, prefix_, formats::shown(object));
  }

  /// Null stands for absent.
  const json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }

  template <class T>
  T required(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) config_error("{}: '{}{}' is missing", place_, prefix_, key);
    return as<T>(key, *value);
  }

  template <class T>
  T optional(const char* key, T otherwise) const {
    const json* value = find(key);
    return value == nullptr ? otherwise : as<T>(key, *value);
  }

  /// Zero stands for absent too.
  double optional_positive(const char* key, double otherwise) const {
    const double value = optional<double>(key, 0);
    if (!(value >= 0)) config_error("{}: '{}{}' is {}, 0 or more is expected", place_, prefix_, key, value);
    return value == 0 ? otherwise : value;
  }

  void refuse_others(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : object_.items()) {
      if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = did_you_mean(key, known);
      config_error("{}: '{}{}' is not known{}", place_, prefix_, escaped(key, 60),
                   near.empty() ? fmt::format(", accepted: {}", fmt::join(known, ", ")) : near);
    }
  }

 private:
  template <class T>
  T as(const char* key, const json& value) const {
    const char* expected = nullptr;
    if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_boolean()) expected = "true or false";
    } else if constexpr (std::is_same_v<T, double>) {
      if (!value.is_number()) expected = "a number";
    } else if constexpr (std::is_same_v<T, int64_t>) {
      if (!value.is_number_integer()) expected = "a whole number";
      constexpr int64_t kMost = int64_t{1} << 40;  // products of a few sizes stay far from overflow
      if (!expected && (value.is_number_unsigned() ? value.get<uint64_t>() > static_cast<uint64_t>(kMost)
                                                   : value.get<int64_t>() < -kMost)) {
        expected = "a whole number below 2^40";
      }
    } else {
      if (!value.is_string()) expected = "a string";
    }
    if (expected != nullptr) {
      config_error("{}: '{}{}' is {}, {} is expected", place_, prefix_, key, formats::shown(value), expected);
    }
    return value.get<T>();
  }

  const json& object_;
  std::string place_, prefix_;
};

// Old files have rope_theta and rope_scaling; those of Transformers 5 have both in rope_parameters. Where both
// stand, Transformers takes rope_scaling, and a rope_theta in it before the one outside.
void read_rope(const Keys& keys, const std::string& place, ModelConfig& c) {
  c.rope_theta = keys.optional<double>("rope_theta", c.rope_theta);
  const char* section = "rope_scaling";
  const json* scaling = keys.find(section);
  if (scaling == nullptr || scaling->empty()) scaling = keys.find(section = "rope_parameters");
  if (scaling == nullptr) return;
  const std::string name = section + std::string(".");
  const Keys rope(*scaling, place, name);
  c.rope_theta = rope.optional<double>("rope_theta", c.rope_theta);
  const std::string type = rope.optional<std::string>("rope_type", rope.optional<std::string>("type", "default"));
  if (rope.optional<double>("partial_rotary_factor", 1) != 1) {
    config_error("{}: '{}partial_rotary_factor': heads rotated in part by it are not built", place, name);
  }
  if (type == "default") return;
  if (type != "yarn") {
    config_error("{}: '{}type' is '{}', accepted are 'default' and 'yarn'", place, name, escaped(type, 60));
  }
  rope.refuse_others({"type", "rope_type", "rope_theta", "factor", "original_max_position_embeddings", "beta_fast",
                      "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate",
                      "partial_rotary_factor", "finetuned"});
  model::Yarn yarn;
  yarn.factor = rope.required<double>("factor");
  // A key of that name outside goes before the one inside.
  yarn.original_max_position_embeddings = keys.optional<double>(
      "original_max_position_embeddings",
      rope.optional<double>("original_max_position_embeddings", keys.required<double>("max_position_embeddings")));
  yarn.beta_fast = rope.optional_positive("beta_fast", yarn.beta_fast);
  yarn.beta_slow = rope.optional_positive("beta_slow", yarn.beta_slow);
  yarn.mscale = rope.optional_positive("mscale", 0);
  yarn.mscale_all_dim = rope.optional_positive("mscale_all_dim", 0);
  if (rope.find("attention_factor") != nullptr) {
    yarn.attention_factor = rope.required<double>("attention_factor");
    if (!(yarn.attention_factor > 0)) {
      config_error("{}: '{}attention_factor' is {}, more than 0 is expected", place, name, yarn.attention_factor);
    }
  }
  yarn.truncate = rope.optional<bool>("truncate", yarn.truncate);
  if (!(yarn.factor >= 1) || !(yarn.original_max_position_embeddings >= 1)) {
    config_error("{}: '{}factor' is {} and its original length {}, both must be at least 1", place, name,
                 yarn.factor, yarn.original_max_position_embeddings);
  }
  c.rope_scaling = yarn;
}

void read_heddle(const Keys& keys, const std::string& place, ModelConfig& c) {
  const json* object = keys.find("heddle");
  if (object == nullptr) return;
  const Keys ours(*object, place, "heddle.");
  c.topk_bias = ours.optional<bool>("topk_bias", c.topk_bias);
  c.mtp_loss_weight = ours.optional<double>("mtp_loss_weight", c.mtp_loss_weight);
  c.sequence_aux_loss_alpha = ours.optional<double>("sequence_aux_loss_alpha", c.sequence_aux_loss_alpha);
  c.z_loss_weight = ours.optional<double>("z_loss_weight", c.z_loss_weight);
  if (ours.find("bias_update_rate") != nullptr) c.bias_update_rate = ours.required<double>("bias_update_rate");
  ours.refuse_others(
      {"topk_bias", "mtp_loss_weight", "sequence_aux_loss_alpha", "z_loss_weight", "bias_update_rate"});
}

}  // namespace

ModelConfig model_config_from_json(const json& root, const std::string& place, std::vector<std::string>* warnings) {
  const Keys keys(root, place, "");
  check_keys(root, place, warnings);
  ModelConfig c;
  c.vocab_size = keys.required<int64_t>("vocab_size");
  c.hidden_size = keys.required<int64_t>("hidden_size");
  c.num_hidden_layers = keys.required<int64_t>("num_hidden_layers");
  c.intermediate_size = keys.required<int64_t>("intermediate_size");
  c.first_k_dense_replace = keys.required<int64_t>("first_k_dense_replace");
  c.rms_norm_eps = keys.optional<double>("rms_norm_eps", 1e-6);
  c.initializer_range = keys.optional<double>("initializer_range", c.initializer_range);
  c.tie_word_embeddings = keys.optional<bool>("tie_word_embeddings", false);
  c.max_position_embeddings = keys.required<int64_t>("max_position_embeddings");

  c.num_attention_heads = keys.required<int64_t>("num_attention_heads");
  if (!root.contains("q_lora_rank")) {
    config_error("{}: 'q_lora_rank' is missing; null stands for queries projected directly", place);
  }
  c.q_lora_rank = keys.optional<int64_t>("q_lora_rank", 0);
  c.kv_lora_rank = keys.required<int64_t>("kv_lora_rank");
  c.qk_nope_head_dim = keys.required<int64_t>("qk_nope_head_dim");
  c.qk_rope_head_dim = keys.required<int64_t>("qk_rope_head_dim");
  c.v_head_dim = keys.required<int64_t>("v_head_dim");
  read_rope(keys, place, c);

  c.n_routed_experts = keys.required<int64_t>("n_routed_experts");
  c.num_experts_per_tok = keys.required<int64_t>("num_experts_per_tok");
  // A flag of null is off to Transformers.
  const auto flag = [&](const char* key) { return keys.optional<bool>(key, !root.contains(key)); };
  // What is absent is what Transformers takes it for; no shared experts are 0, or null in old files.
  c.n_shared_experts = root.contains("n_shared_experts") ? keys.optional<int64_t>("n_shared_experts", 0) : 1;
  c.moe_intermediate_size = keys.required<int64_t>("moe_intermediate_size");
  c.n_group = keys.optional<int64_t>("n_group", 8);
  c.topk_group = keys.optional<int64_t>("topk_group", 4);
  c.norm_topk_prob = flag("norm_topk_prob");
  c.rope_interleave = flag("rope_interleave");
  c.sigmoid_scores = keys.optional<std::string>("scoring_func", "sigmoid") == "sigmoid";
  c.routed_scaling_factor = keys.optional<double>("routed_scaling_factor", 2.5);
  c.num_nextn_predict_layers = keys.optional<int64_t>("num_nextn_predict_layers", 0);
  read_heddle(keys, place, c);
  try {
    model::validate(c);
  } catch (const ConfigError& error) {
    config_error("{}: {}", place, error.what());
  }
  return c;
}

ModelConfig read_model_config(const std::string& path) {
  return model_config_from_json(formats::parse_json(read_file(path, kMostConfigBytes), path, kMostNesting), path);
}

nlohmann::ordered_json model_config_to_json(const ModelConfig& c) {
  nlohmann::ordered_json j;
  j["architectures"] = {"DeepseekV3ForCausalLM"};
  j["model_type"] = "deepseek_v3";
  j["vocab_size"] = c.vocab_size;
  j["hidden_size"] = c.hidden_size;
  j["num_hidden_layers"] = c.num_hidden_layers;
  j["intermediate_size"] = c.intermediate_size;
  j["first_k_dense_replace"] = c.first_k_dense_replace;
  j["moe_layer_freq"] = 1;
  j["hidden_act"] = "silu";
  j["rms_norm_eps"] = c.rms_norm_eps;
  j["initializer_range"] = c.initializer_range;
  j["tie_word_embeddings"] = c.tie_word_embeddings;
  j["max_position_embeddings"] = c.max_position_embeddings;
  j["attention_bias"] = false;
  j["attention_dropout"] = 0.0;
  j["num_attention_heads"] = c.num_attention_heads;
  j["num_key_value_heads"] = c.num_attention_heads;
  j["q_lora_rank"] = c.q_lora_rank > 0 ? nlohmann::ordered_json(c.q_lora_rank) : nlohmann::ordered_json(nullptr);
  j["kv_lora_rank"] = c.kv_lora_rank;
  j["qk_nope_head_dim"] = c.qk_nope_head_dim;
  j["qk_rope_head_dim"] = c.qk_rope_head_dim;
  j["v_head_dim"] = c.v_head_dim;
  j["rope_theta"] = c.rope_theta;
  j["rope_interleave"] = c.rope_interleave;
  j["rope_scaling"] = nullptr;
  if (c.rope_scaling) {
    const model::Yarn& y = *c.rope_scaling;
    j["rope_scaling"] = {{"type", "yarn"},
                         {"factor", y.factor},
                         {"original_max_position_embeddings", y.original_max_position_embeddings},
                         {"beta_fast", y.beta_fast},
                         {"beta_slow", y.beta_slow}};
    if (y.mscale != 0) j["rope_scaling"]["mscale"] = y.mscale;
    if (y.mscale_all_dim != 0) j["rope_scaling"]["mscale_all_dim"] = y.mscale_all_dim;
    if (y.attention_factor != 0) j["rope_scaling"]["attention_factor"] = y.attention_factor;
    if (!y.truncate) j["rope_scaling"]["truncate"] = false;
    if (y.original_max_position_embeddings ==
        static_cast<double>(static_cast<int64_t>(y.original_max_position_embeddings))) {
      j["rope_scaling"]["original_max_position_embeddings"] =
          static_cast<int64_t>(y.original_max_position_embeddings);
    }
  }
  j["n_routed_experts"] = c.n_routed_experts;
  j["num_experts_per_tok"] = c.num_experts_per_tok;
  j["n_shared_experts"] = c.n_shared_experts;
  j["moe_intermediate_size"] = c.moe_intermediate_size;
  j["n_group"] = c.n_group;
  j["topk_group"] = c.topk_group;
  j["norm_topk_prob"] = c.norm_topk_prob;
  j["scoring_func"] = c.sigmoid_scores ? "sigmoid" : "softmax";
  j["topk_method"] = "noaux_tc";
  j["routed_scaling_factor"] = c.routed_scaling_factor;
  j["num_nextn_predict_layers"] = c.num_nextn_predict_layers;
  j["heddle"] = {{"topk_bias", c.topk_bias},
                 {"mtp_loss_weight", c.mtp_loss_weight},
                 {"sequence_aux_loss_alpha", c.sequence_aux_loss_alpha},
                 {"z_loss_weight", c.z_loss_weight}};
  if (c.bias_update_rate) j["heddle"]["bias_update_rate"] = *c.bias_update_rate;
  return j;
}

std::string difference(const ModelConfig& found, const ModelConfig& expected) {
  nlohmann::ordered_json a = model_config_to_json(found), b = model_config_to_json(expected);
  for (const char* free : {"initializer_range", "max_position_embeddings", "heddle"}) {
    a.erase(free);
    b.erase(free);
  }
  for (const auto& [key, value] : b.items()) {
    if (a[key] != value) return fmt::format("{} is {}, {} is expected", key, a[key].dump(), value.dump());
  }
  if (found.topk_bias != expected.topk_bias) {
    return fmt::format("heddle.topk_bias is {}, {} is expected", found.topk_bias, expected.topk_bias);
  }
  return "";
}

}  // namespace heddle::config
