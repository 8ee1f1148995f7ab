// Models by name, and models out of a Hugging Face config.json.
//
// Sources: the config.json files released with DeepSeek-V2-Lite and DeepSeek-V3. A file of the V2 family is put
// into V3's words first; model_json reads those. What Heddle would compute otherwise is refused.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/base/escaped.h"
#include "heddle/base/output_file.h"
#include "heddle/formats/json_text.h"
#include "heddle/config/model_json.h"
#include "heddle/formats/released_files.h"
#include "heddle/config/run_config.h"

namespace heddle::config {

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
  c.bias_update_rate = 0.001;  // for all but the last of its steps
  return c;
}

struct Preset {
  const char* name;
  ModelConfig (*make)();
};
constexpr Preset kPresets[] = {
    {"demo", demo}, {"deepseek-v2-lite", deepseek_v2_lite}, {"deepseek-v3", deepseek_v3}};

bool is_v2(const Json& json, const std::string& place) {
  std::string architecture;
  for (const char* key : {"model_type", "architectures"}) {
    const Json value = json.value(key, Json());
    if (value.is_string()) architecture = value.get<std::string>();
    if (value.is_array() && value.size() == 1 && value[0].is_string()) architecture = value[0].get<std::string>();
  }
  if (architecture == "DeepseekV2ForCausalLM" || architecture == "deepseek_v2") return true;
  if (architecture == "DeepseekV3ForCausalLM" || architecture == "deepseek_v3") return false;
  config_error("{}: the architecture is '{}', accepted: DeepseekV2ForCausalLM, DeepseekV3ForCausalLM", place,
               escaped(architecture, 60));
}

// The V2 family in the words of V3: softmax scores, no bias on the choice, other defaults.
void rewrite_v2(Json& json, const std::string& place) {
  const auto or_default = [&](const char* key, const Json& standard) -> Json& {
    Json& value = json[key];
    if (value.is_null()) value = standard;
    return value;
  };
  json["model_type"] = "deepseek_v3";
  if (or_default("scoring_func", "softmax") != "softmax") {
    config_error("{}: 'scoring_func' is {}: the V2 family has \"softmax\"", place, formats::shown(json["scoring_func"]));
  }
  const Json method = or_default("topk_method", "greedy");
  // group_limited_greedy ranks a group by its best expert; Heddle ranks it by its best two.
  const bool all_groups = or_default("topk_group", 1) == or_default("n_group", 1);
  if (method != "greedy" && !(method == "group_limited_greedy" && all_groups)) {
    config_error("{}: 'topk_method' is {} with {} of {} groups, accepted is \"greedy\"", place, formats::shown(method),
                 formats::shown(json["topk_group"]), formats::shown(json["n_group"]));
  }
  json["topk_method"] = "noaux_tc";
  json["n_group"] = json["topk_group"] = 1;
  // The released code of V2 normalises gates and then does not scale them; Transformers scales and never
  // normalises.
  if (or_default("norm_topk_prob", false) != false) {
    config_error("{}: 'norm_topk_prob' is {}: in the V2 family it means two things, accepted is false", place,
                 formats::shown(json["norm_topk_prob"]));
  }
  or_default("routed_scaling_factor", 1.0);
  if (or_default("rope_interleave", true) != true) {
    config_error("{}: 'rope_interleave' is {}: the V2 family rotates neighbours", place,
                 formats::shown(json["rope_interleave"]));
  }
  if (!json.contains("n_shared_experts")) json["n_shared_experts"] = 2;
  or_default("first_k_dense_replace", 0);
  json["heddle"]["topk_bias"] = false;
}

// Transformers has second names for some keys.
void rename_keys(Json& json, const std::string& place) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"num_local_experts", "n_routed_experts"},
                                                            {"num_experts", "n_routed_experts"},
                                                            {"num_mtp_layers", "num_nextn_predict_layers"}};
  for (const auto& [other, ours] : kNames) {
    const Json value = json.value(other, Json());
    if (value.is_null()) continue;
    Json& known = json[ours];
    if (known.is_null()) known = value;
    if (known != value) {
      config_error("{}: '{}' is {} and '{}' {}: they are one key", place, other, formats::shown(value), ours, formats::shown(known));
    }
  }
}

// Transformers writes num_nextn_predict_layers = 1 unless told otherwise, also where no such layer was ever
// trained. A released model has the layers that lie beside its configuration.
void count_prediction_layers(ModelConfig& config, const std::string& path, std::vector<std::string>* warnings) {
  if (config.num_nextn_predict_layers == 0) return;
  const auto names = formats::released_names(std::filesystem::path(path).parent_path().string());
  if (!names) return;
  const std::string layer = fmt::format("model.layers.{}.", config.num_hidden_layers);
  if (std::any_of(names->begin(), names->end(), [&](const auto& name) { return name.starts_with(layer); })) return;
  if (warnings != nullptr) {
    warnings->push_back(
        fmt::format("{}: 'num_nextn_predict_layers' is {}, but the weights beside it have no such "
                    "layer: taken as 0",
                    path, config.num_nextn_predict_layers));
  }
  config.num_nextn_predict_layers = 0;
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

ModelConfig read_huggingface_config(const std::string& path, std::vector<std::string>* warnings) {
  constexpr int kMostNesting = 16;
  Json json = formats::parse_json(read_file(path, kMostConfigBytes), path, kMostNesting);
  if (!json.is_object()) config_error("{}: not a JSON object", path);
  const Json own = json.value("heddle", Json());
  if (!own.is_null() && !own.is_object())
    config_error("{}: 'heddle' is {}, an object is expected", path, formats::shown(own));
  rename_keys(json, path);
  const bool v2 = is_v2(json, path);
  if (v2) {
    rewrite_v2(json, path);
  } else if (own.is_null() && json.value("scoring_func", Json()) == "softmax") {
    config_error("{}: 'scoring_func' is \"softmax\": the V3 family has \"sigmoid\"", path);
  }
  json.erase("quantization_config");  // of the released weights, which are not read here
  const Json alpha = json.value("aux_loss_alpha", Json());
  if (alpha.is_number() && json.value("seq_aux", Json(true)) == true) {
    json["heddle"].emplace("sequence_aux_loss_alpha", alpha);
  } else if (alpha.is_number() && alpha != 0 && warnings != nullptr) {
    warnings->push_back(
        fmt::format("{}: 'aux_loss_alpha' is {} over the whole batch (seq_aux is false), which is not "
                    "built: taken as 0",
                    path, formats::shown(alpha)));
  }
  ModelConfig config = model_config_from_json(json, path, warnings);
  count_prediction_layers(config, path, warnings);
  if (!v2 && !config.bias_update_rate) config.bias_update_rate = deepseek_v3().bias_update_rate;
  return config;
}

}  // namespace heddle::config
