#include "heddle/train/model_json.h"

#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/train/output_file.h"
#include "heddle/train/safetensors.h"

namespace heddle::train {

namespace {

using model::ModelConfig;
using nlohmann::json;

constexpr int64_t kMostConfigBytes = 1 << 20;
constexpr int kMostNesting = 16;

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', true, json::error_handler_t::replace));
}

// The keys of one object, each asked for with the type that it must have.
class Keys {
 public:
  Keys(const json& object, std::string place, std::string prefix)
      : object_(object), place_(std::move(place)), prefix_(std::move(prefix)) {
    if (!object.is_object()) config_error("{}: {} is {}, an object is expected", place_, prefix_, shown(object));
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

  /// For keys of which only one value is built.
  template <class T>
  void only(const char* key, const T& accepted, const char* reason) const {
    if (const json* value = find(key); value != nullptr && as<T>(key, *value) != accepted) {
      config_error("{}: '{}{}' is {}: {}", place_, prefix_, key, shown(*value), reason);
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
      config_error("{}: '{}{}' is {}, {} is expected", place_, prefix_, key, shown(value), expected);
    }
    return value.get<T>();
  }

  const json& object_;
  std::string place_, prefix_;
};

// Old files have rope_theta and rope_scaling; those of Transformers 5 have both in rope_parameters.
void read_rope(const json& root, const Keys& keys, const std::string& place, ModelConfig& c) {
  const json* scaling = keys.find("rope_parameters");
  std::string name = "rope_parameters.";
  if (scaling != nullptr) {
    c.rope_theta = Keys(*scaling, place, name).optional<double>("rope_theta", c.rope_theta);
  } else {
    scaling = keys.find("rope_scaling");
    name = "rope_scaling.";
  }
  c.rope_theta = keys.optional<double>("rope_theta", c.rope_theta);
  if (scaling == nullptr) return;
  const Keys rope(*scaling, place, name);
  const std::string type = rope.optional<std::string>("rope_type", rope.optional<std::string>("type", "default"));
  if (type == "default") return;
  if (type != "yarn") {
    config_error("{}: '{}type' is '{}', accepted are 'default' and 'yarn'", place, name, printable(type));
  }
  model::Yarn yarn;
  yarn.factor = rope.required<double>("factor");
  yarn.original_max_position_embeddings = rope.optional<double>(
      "original_max_position_embeddings", Keys(root, place, "").required<double>("max_position_embeddings"));
  yarn.beta_fast = rope.optional<double>("beta_fast", yarn.beta_fast);
  yarn.beta_slow = rope.optional<double>("beta_slow", yarn.beta_slow);
  yarn.mscale = rope.optional<double>("mscale", yarn.mscale);
  yarn.mscale_all_dim = rope.optional<double>("mscale_all_dim", yarn.mscale_all_dim);
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
}

}  // namespace

ModelConfig model_config_from_json(const json& root, const std::string& place) {
  const Keys keys(root, place, "");
  keys.only<std::string>("model_type", "deepseek_v3", "only 'deepseek_v3' is built");
  keys.only<std::string>("hidden_act", "silu", "only 'silu' is built");
  keys.only<bool>("attention_bias", false, "biases in attention are not built");
  keys.only<int64_t>("moe_layer_freq", 1, "every layer after the dense ones has experts");
  keys.only<std::string>("topk_method", "noaux_tc", "only 'noaux_tc' is built");
  if (keys.find("quantization_config") != nullptr) {
    config_error("{}: 'quantization_config': quantised weights are not read; convert the model to BF16 first",
                 place);
  }
  ModelConfig c;
  c.vocab_size = keys.required<int64_t>("vocab_size");
  c.hidden_size = keys.required<int64_t>("hidden_size");
  c.num_hidden_layers = keys.required<int64_t>("num_hidden_layers");
  c.intermediate_size = keys.required<int64_t>("intermediate_size");
  c.first_k_dense_replace = keys.required<int64_t>("first_k_dense_replace");
  c.rms_norm_eps = keys.required<double>("rms_norm_eps");
  c.initializer_range = keys.optional<double>("initializer_range", c.initializer_range);
  c.tie_word_embeddings = keys.optional<bool>("tie_word_embeddings", false);
  c.max_position_embeddings = keys.required<int64_t>("max_position_embeddings");

  c.num_attention_heads = keys.required<int64_t>("num_attention_heads");
  keys.only<int64_t>("num_key_value_heads", c.num_attention_heads, "latent attention has as many as heads");
  c.q_lora_rank = keys.optional<int64_t>("q_lora_rank", 0);
  c.kv_lora_rank = keys.required<int64_t>("kv_lora_rank");
  c.qk_nope_head_dim = keys.required<int64_t>("qk_nope_head_dim");
  c.qk_rope_head_dim = keys.required<int64_t>("qk_rope_head_dim");
  c.v_head_dim = keys.required<int64_t>("v_head_dim");
  c.rope_interleave = keys.optional<bool>("rope_interleave", true);
  read_rope(root, keys, place, c);

  c.n_routed_experts = keys.required<int64_t>("n_routed_experts");
  c.num_experts_per_tok = keys.required<int64_t>("num_experts_per_tok");
  c.n_shared_experts = keys.optional<int64_t>("n_shared_experts", 0);
  c.moe_intermediate_size = keys.required<int64_t>("moe_intermediate_size");
  c.n_group = keys.optional<int64_t>("n_group", 1);
  c.topk_group = keys.optional<int64_t>("topk_group", 1);
  c.norm_topk_prob = keys.optional<bool>("norm_topk_prob", true);
  const std::string scores = keys.optional<std::string>("scoring_func", "sigmoid");
  if (scores != "sigmoid" && scores != "softmax") {
    config_error("{}: 'scoring_func' is '{}', accepted are 'sigmoid' and 'softmax'", place, printable(scores));
  }
  c.sigmoid_scores = scores == "sigmoid";
  c.routed_scaling_factor = keys.optional<double>("routed_scaling_factor", 1.0);
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
  const std::string text = read_file(path, kMostConfigBytes);
  const auto shallow = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMostNesting) config_error("{}: nested deeper than {}", path, kMostNesting);
    return true;
  };
  json root;
  try {
    root = json::parse(text, shallow);
  } catch (const json::exception& error) {
    config_error("{}: not JSON: {}", path, printable(error.what()));
  }
  return model_config_from_json(root, path);
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
                         {"beta_slow", y.beta_slow},
                         {"mscale", y.mscale},
                         {"mscale_all_dim", y.mscale_all_dim}};
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

}  // namespace heddle::train
