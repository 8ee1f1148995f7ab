// Models by name, and models out of a Hugging Face config.json.
//
// Sources: the config.json files released with DeepSeek-V2-Lite and DeepSeek-V3, and what Transformers computes from
// them. Where two families read one key differently, or a key asks for what Heddle does not compute, the file is
// refused rather than read loosely.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/train/run_config.h"

namespace heddle::train {

namespace {

using Json = nlohmann::json;
using model::ModelConfig;

ModelConfig demo() {
  ModelConfig c;
  c.num_nextn_predict_layers = 1;
  c.sequence_aux_loss_alpha = 1e-4;
  return c;
}

// DeepSeek-AI, arXiv 2405.04434, appendix B.
ModelConfig deepseek_v2_lite() {
  ModelConfig c;
  c.vocab_size = 102400;
  c.hidden_size = 2048;
  c.num_hidden_layers = 27;
  c.intermediate_size = 10944;
  c.max_position_embeddings = 163840;
  c.num_attention_heads = 16;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.rope_scaling = model::Yarn{.factor = 40, .mscale = 0.707, .mscale_all_dim = 0.707};
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 6;
  c.n_shared_experts = 2;
  c.moe_intermediate_size = 1408;
  c.norm_topk_prob = false;
  c.sigmoid_scores = false;
  c.topk_bias = false;
  c.sequence_aux_loss_alpha = 0.001;
  return c;
}

// DeepSeek-AI, arXiv 2412.19437, section 4.2.
ModelConfig deepseek_v3() {
  ModelConfig c;
  c.vocab_size = 129280;
  c.hidden_size = 7168;
  c.num_hidden_layers = 61;
  c.intermediate_size = 18432;
  c.first_k_dense_replace = 3;
  c.max_position_embeddings = 163840;
  c.num_attention_heads = 128;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.rope_scaling = model::Yarn{.factor = 40, .mscale = 1, .mscale_all_dim = 1};
  c.n_routed_experts = 256;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 2048;
  c.n_group = 8;
  c.topk_group = 4;
  c.routed_scaling_factor = 2.5;
  c.num_nextn_predict_layers = 1;
  c.sequence_aux_loss_alpha = 1e-4;
  return c;
}

struct Preset {
  const char* name;
  ModelConfig (*make)();
};
constexpr Preset kPresets[] = {{"demo", demo}, {"deepseek-v2-lite", deepseek_v2_lite}, {"deepseek-v3", deepseek_v3}};

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

// The keys of one JSON object.
class Keys {
 public:
  Keys(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  const Json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  const Json& need(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) config_error("{}: the key '{}' is missing", place_, key);
    return *value;
  }
  int64_t integer(const char* key) const { return integer(key, need(key)); }
  int64_t integer(const char* key, int64_t otherwise) const {
    const Json* value = find(key);
    return value == nullptr ? otherwise : integer(key, *value);
  }
  double number(const char* key, double otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) wrong(key, "a number", *value);
    return value->get<double>();
  }
  bool boolean(const char* key, bool otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) wrong(key, "true or false", *value);
    return value->get<bool>();
  }
  std::string word(const char* key, const std::string& otherwise) const {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) wrong(key, "a text", *value);
    return value->get<std::string>();
  }
  [[noreturn]] void wrong(const char* key, std::string_view accepted, const Json& found) const {
    config_error("{}: {} takes {}, found {}", place_, key, accepted, shown(found));
  }
  /// Refuses every value but one.
  void only(const char* key, const Json& accepted) const {
    const Json* value = find(key);
    if (value != nullptr && *value != accepted) wrong(key, shown(accepted), *value);
  }
  const std::string& place() const { return place_; }

 private:
  int64_t integer(const char* key, const Json& value) const {
    if (!value.is_number_integer()) wrong(key, "an integer", value);
    const auto number = value.get<int64_t>();
    if (number < 0 || number > (int64_t{1} << 30)) wrong(key, "an integer from 0 to 2^30", value);
    return number;
  }
  const Json& object_;
  std::string place_;
};

void read_rope(const Keys& keys, ModelConfig& c) {
  // Transformers 5 keeps everything about rope in "rope_parameters", older ones the scaling in "rope_scaling".
  c.rope_theta = keys.number("rope_theta", 10000);
  const Json* rope = keys.find("rope_parameters");
  if (rope == nullptr) rope = keys.find("rope_scaling");
  if (rope == nullptr) return;
  if (!rope->is_object()) keys.wrong("rope_scaling", "an object", *rope);
  const Keys scaling(*rope, keys.place() + ": rope_scaling");
  c.rope_theta = scaling.number("rope_theta", c.rope_theta);
  const std::string type = scaling.word("rope_type", scaling.word("type", "default"));
  if (type == "default") return;
  if (type != "yarn") config_error("{}: type is '{}', accepted: default, yarn", scaling.place(), type.substr(0, 40));
  model::Yarn yarn;
  yarn.factor = scaling.number("factor", 1);
  yarn.original_max_position_embeddings = scaling.number("original_max_position_embeddings", 4096);
  yarn.beta_fast = scaling.number("beta_fast", 32);
  yarn.beta_slow = scaling.number("beta_slow", 1);
  yarn.mscale = scaling.number("mscale", 1);
  yarn.mscale_all_dim = scaling.number("mscale_all_dim", 0);
  c.rope_scaling = yarn;
}

bool is_v3(const Keys& keys) {
  std::string architecture = keys.word("model_type", "");
  if (const Json* list = keys.find("architectures"); list != nullptr && list->is_array() && !list->empty()) {
    if (!(*list)[0].is_string()) keys.wrong("architectures", "a list of names", *list);
    architecture = (*list)[0].get<std::string>();
  }
  if (architecture == "DeepseekV3ForCausalLM" || architecture == "deepseek_v3") return true;
  if (architecture == "DeepseekV2ForCausalLM" || architecture == "deepseek_v2") return false;
  config_error("{}: the architecture is '{}', accepted: DeepseekV2ForCausalLM, DeepseekV3ForCausalLM", keys.place(),
               architecture.substr(0, 80));
}

void read_experts(const Keys& keys, bool v3, ModelConfig& c) {
  keys.only("moe_layer_freq", 1);
  c.first_k_dense_replace = keys.integer("first_k_dense_replace", 0);
  c.n_routed_experts = keys.integer("n_routed_experts");
  c.num_experts_per_tok = keys.integer("num_experts_per_tok");
  c.n_shared_experts = keys.integer("n_shared_experts", 0);
  c.moe_intermediate_size = keys.integer("moe_intermediate_size");
  c.n_group = keys.integer("n_group", 1);
  c.topk_group = keys.integer("topk_group", 1);
  c.norm_topk_prob = keys.boolean("norm_topk_prob", v3);
  c.routed_scaling_factor = keys.number("routed_scaling_factor", 1);
  const std::string scores = keys.word("scoring_func", v3 ? "sigmoid" : "softmax");
  if (scores != "sigmoid" && scores != "softmax") keys.wrong("scoring_func", "sigmoid or softmax", scores);
  c.sigmoid_scores = scores == "sigmoid";
  const std::string method = keys.word("topk_method", v3 ? "noaux_tc" : "greedy");
  if (method == "noaux_tc") {
    c.topk_bias = true;
  } else if (method == "greedy") {
    c.topk_bias = false;
    c.n_group = c.topk_group = 1;
  } else if (method == "group_limited_greedy" && c.topk_group == c.n_group) {
    c.topk_bias = false;
    c.n_group = c.topk_group = 1;
  } else {
    // group_limited_greedy ranks a group by its best expert; Heddle's choice ranks it by its best two.
    config_error("{}: topk_method is '{}' with {} of {} groups, accepted: noaux_tc, greedy", keys.place(),
                 method.substr(0, 40), c.topk_group, c.n_group);
  }
  if (!v3 && c.norm_topk_prob && c.routed_scaling_factor != 1) {
    // The released code of V2 scales only gates that it did not normalise, later ones scale both.
    config_error("{}: norm_topk_prob with routed_scaling_factor {} is read in two ways in the V2 family, accepted: 1",
                 keys.place(), c.routed_scaling_factor);
  }
  if (keys.find("aux_loss_alpha") != nullptr) {
    if (keys.boolean("seq_aux", true)) c.sequence_aux_loss_alpha = keys.number("aux_loss_alpha", 0);
  }
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

ModelConfig preset(std::string_view name) {
  for (const Preset& p : kPresets) {
    if (p.name == name) return p.make();
  }
  config_error("no preset '{}', accepted: {}", name, fmt::join(preset_names(), ", "));
}

ModelConfig read_huggingface_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) config_error("{}: cannot be read: {}", path, std::strerror(errno));
  std::string text(static_cast<size_t>(kMostConfigBytes) + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) config_error("{}: cannot be read: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > static_cast<size_t>(kMostConfigBytes)) {
    config_error("{}: larger than {} bytes, no config.json", path, kMostConfigBytes);
  }
  // A nesting bound first: the parser keeps its own stack, but destroying the value recurses.
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (depth > 64) config_error("{}: nested more than 64 deep, no config.json", path);
  }
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    config_error("{}: no JSON at byte {}", path, error.byte);
  }
  if (!json.is_object()) config_error("{}: not a JSON object", path);
  const Keys keys(json, path);
  const bool v3 = is_v3(keys);
  keys.only("attention_bias", false);
  keys.only("hidden_act", "silu");
  ModelConfig c;
  c.vocab_size = keys.integer("vocab_size");
  c.hidden_size = keys.integer("hidden_size");
  c.num_hidden_layers = keys.integer("num_hidden_layers");
  c.intermediate_size = keys.integer("intermediate_size");
  c.rms_norm_eps = keys.number("rms_norm_eps", 1e-6);
  c.initializer_range = keys.number("initializer_range", 0.02);
  c.tie_word_embeddings = keys.boolean("tie_word_embeddings", false);
  c.max_position_embeddings = keys.integer("max_position_embeddings");
  c.num_attention_heads = keys.integer("num_attention_heads");
  if (keys.integer("num_key_value_heads", c.num_attention_heads) != c.num_attention_heads) {
    keys.wrong("num_key_value_heads", fmt::format("{}, as many as heads", c.num_attention_heads),
               *keys.find("num_key_value_heads"));
  }
  c.q_lora_rank = keys.integer("q_lora_rank", 0);
  c.kv_lora_rank = keys.integer("kv_lora_rank");
  c.qk_nope_head_dim = keys.integer("qk_nope_head_dim");
  c.qk_rope_head_dim = keys.integer("qk_rope_head_dim");
  c.v_head_dim = keys.integer("v_head_dim");
  c.rope_interleave = keys.boolean("rope_interleave", true);
  read_rope(keys, c);
  read_experts(keys, v3, c);
  c.num_nextn_predict_layers = keys.integer("num_nextn_predict_layers", 0);
  model::validate(c);
  return c;
}

}  // namespace heddle::train
