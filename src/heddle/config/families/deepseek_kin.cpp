// Models that are DeepSeek-V3 in other words, or but for a small part: Youtu-LLM, which has no experts; Sarvam
// 105B; A.X-K1, whose experts' sum has a norm; Kimi-K2.5, whose folders hold a model of pictures beside Kimi K2.
//
// Sources: YoutuConfig, SarvamMLAConfig, AXK1Config and Kimi_K25Config of Transformers 5.24, gone through key by
// key; the model cards of tencent/Youtu-LLM-2B and skt/A.X-K1; arXiv 2512.24618 and 2601.09200.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "heddle/base/error.h"
#include "heddle/config/families/beside_pictures.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/formats/json_text.h"
#include "heddle/formats/released_files.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

bool never_written(const ModelConfig&) { return false; }

ModelConfig youtu_2b() {
  ModelConfig c = deepseek_v3().presets.at(0).model;
  c.vocab_size = 128256;
  c.hidden_size = 2048;
  c.num_hidden_layers = 32;
  c.intermediate_size = 6144;
  c.tie_word_embeddings = true;
  c.max_position_embeddings = 131072;
  c.num_attention_heads = 16;
  c.rope_scaling.reset();
  c.initializer_range = 2 / std::sqrt(5.0 * 2048);
  c.num_nextn_predict_layers = 0;
  c.sequence_aux_loss_alpha = 0;
  c.bias_update_rate.reset();
  const ModelConfig plain;
  c.n_routed_experts = plain.n_routed_experts;
  c.num_experts_per_tok = plain.num_experts_per_tok;
  c.moe_intermediate_size = plain.moe_intermediate_size;
  c.n_group = c.topk_group = 1;
  c.routed_scaling_factor = 1;
  make_dense(c);
  return c;
}

// The spread of the start follows from the width where the file does not say it.
void read_spread(const JsonKeys& keys, ModelConfig& c) {
  c.initializer_range = keys.find("initializer_range") != nullptr
                            ? keys.number("initializer_range")
                            : 2 / std::sqrt(5.0 * static_cast<double>(std::max<int64_t>(1, c.hidden_size)));
}

// Sarvam's first files speak of the width that a cache keeps as head_dim, and have a name of their own for YaRN.
void rewrite_sarvam(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_local_experts", "n_routed_experts"},
              {"num_experts", "n_routed_experts"},
              {"num_shared_experts", "n_shared_experts"},
              {"num_mtp_layers", "num_nextn_predict_layers"}});
  const auto size = [&](const char* name) {
    const Json value = root.value(name, Json());
    return value.is_number_integer() ? value.get<int64_t>() : 0;
  };
  const int64_t rope = size("qk_rope_head_dim");
  const auto forget = [&](const char* name, int64_t sum) {
    const Json value = root.value(name, Json());
    if (value.is_null() || value == rope) return;
    if (value != sum) {
      config_error("{}: '{}' is {}: it is read as {}, the sum of two other keys", place, name,
                   formats::shown(value), sum);
    }
    root.erase(name);
  };
  forget("head_dim", size("kv_lora_rank") + rope);
  forget("q_head_dim", size("qk_nope_head_dim") + rope);
  root.erase("q_head_dim");
  for (const char* section : {"rope_scaling", "rope_parameters"}) {
    if (!root.value(section, Json()).is_object()) continue;
    for (const char* type : {"type", "rope_type"}) {
      if (root[section].value(type, Json()) == "deepseek_yarn") root[section][type] = "yarn";
    }
  }
  if (!root.contains("q_lora_rank")) root["q_lora_rank"] = nullptr;
}

// Memory of the cache aside, sarvamai/sarvam-105b as Transformers has it.
ModelConfig sarvam_105b() {
  ModelConfig c = deepseek_v3().presets.at(0).model;
  c.vocab_size = 262144;
  c.hidden_size = 4096;
  c.num_hidden_layers = 32;
  c.intermediate_size = 16384;
  c.first_k_dense_replace = 1;
  c.max_position_embeddings = 131072;
  c.num_attention_heads = 64;
  c.q_lora_rank = 0;
  c.initializer_range = 0.006;
  c.n_routed_experts = 128;
  c.n_group = c.topk_group = 1;
  c.num_nextn_predict_layers = 0;
  c.sequence_aux_loss_alpha = 0;
  return c;
}

// A word a layer, also where the file has the older keys alone.
void rewrite_axk1(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_local_experts", "n_routed_experts"}, {"num_mtp_layers", "num_nextn_predict_layers"}});
  const Json layers = root.value("num_hidden_layers", Json()), dense = root.value("first_k_dense_replace", Json(1));
  constexpr int64_t kMost = 4096;
  if (root.value("mlp_layer_types", Json()).is_null() && layers.is_number_integer() && dense.is_number_integer() &&
      layers <= kMost) {
    Json types = Json::array();
    for (int64_t l = 0; l < layers.get<int64_t>(); ++l)
      types.push_back(l < dense.get<int64_t>() ? "dense" : "sparse");
    root["mlp_layer_types"] = std::move(types);
  }
  root.erase("topk_method");  // Transformers ranks groups by their best two, whatever it says
}

// The released folders have no biases of the choice.
void complete_axk1(ModelConfig& config, const std::string& path, std::vector<std::string>* warnings) {
  count_prediction_layers(config, path, warnings);
  const auto names = formats::released_names(std::filesystem::path(path).parent_path().string());
  const auto is_bias = [](const auto& name) { return name.ends_with(".e_score_correction_bias"); };
  if (names && std::none_of(names->begin(), names->end(), is_bias)) config.topk_bias = false;
  if (!config.bias_update_rate) config.bias_update_rate = 0.001;
}

// Transformers takes absent biases of the choice for zeros.
FurtherTensors copies_axk1(const ModelConfig& c) {
  FurtherTensors further = prediction_copies(c);
  further.zeros.clear();
  return further;
}

ModelConfig axk1_519b() {
  ModelConfig c = deepseek_v3().presets.at(0).model;
  c.vocab_size = 163840;
  c.first_k_dense_replace = 1;
  c.max_position_embeddings = 32768;
  c.num_attention_heads = 64;
  c.rope_scaling.reset();
  c.n_routed_experts = 192;
  c.num_nextn_predict_layers = 0;
  c.sequence_aux_loss_alpha = 0;
  c.topk_bias = false;
  c.experts_sum_norm = true;
  return c;
}

// Its text model is a DeepSeek-V3, as Transformers has it, or a Kimi K2, as it was released.
void rewrite_kimi_k25(Json& root, const std::string& place) {
  take_text_config(root, place);
  const Json type = root.value("model_type", Json("deepseek_v3"));
  if (type != "deepseek_v3" && type != "kimi_k2") {
    config_error("{}: 'text_config.model_type' is {}, accepted are 'deepseek_v3' and 'kimi_k2'", place,
                 formats::shown(type));
  }
  join_names(root, place,
             {{"num_local_experts", "n_routed_experts"},
              {"num_experts", "n_routed_experts"},
              {"num_mtp_layers", "num_nextn_predict_layers"}});
}

// Transformers 5.24 writes layers of both models as blocks.
std::string spelt_in_blocks(std::string name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (name.starts_with(kLayers)) name.replace(0, kLayers.size(), "model.blocks.");
  return spelt_ahead_of_model(std::move(name));
}

}  // namespace

Family youtu() {
  Family f = deepseek_v3();
  f.architecture = "YoutuForCausalLM";
  f.model_type = "youtu";
  drop_keys(f, {"first_k_dense_replace", "moe_layer_freq", "n_routed_experts", "num_experts_per_tok",
                "n_shared_experts", "moe_intermediate_size", "n_group", "topk_group", "norm_topk_prob",
                "scoring_func", "topk_method", "routed_scaling_factor", "num_nextn_predict_layers"});
  replace_keys(f, {key("tie_word_embeddings", "tie_word_embeddings", true),
                   {.name = "initializer_range",
                    .ours = "initializer_range",
                    .read = read_spread,
                    .write = [](const ModelConfig& c) { return Written(c.initializer_range); }}});
  f.read_besides = {"embedding_initializer_range"};  // of a start from nothing; every weight has one spread here
  f.rewrite = nullptr;
  f.adopt = nullptr;
  f.complete = nullptr;
  f.further = nullptr;
  f.repeats = nullptr;
  f.derive = make_dense;
  f.holds = never_written;  // it is written as V3 without experts
  f.presets = {{"youtu-llm-2b", youtu_2b()}};
  return f;
}

Family sarvam_mla() {
  Family f = deepseek_v3();
  f.architecture = "SarvamMLAForCausalLM";
  f.also_architecture = "DeepseekV3ForCausalLM";  // as Transformers writes it
  f.model_type = "sarvam_mla";
  replace_keys(f, {key("first_k_dense_replace", "first_k_dense_replace", 1),
                   key("initializer_range", "initializer_range", 0.006), key("n_group", "n_group", 1),
                   key("topk_group", "topk_group", 1)});
  f.read_besides.insert(f.read_besides.end(), {"num_shared_experts", "q_head_dim"});
  f.rewrite = rewrite_sarvam;
  f.holds = never_written;  // it is written as V3
  f.presets = {{"sarvam-105b", sarvam_105b()}};
  return f;
}

Family axk1() {
  Family f = deepseek_v3();
  f.architecture = "AXK1ForCausalLM";
  f.model_type = "axk1";
  f.base.experts_sum_norm = true;
  f.said.push_back("experts_sum_norm");
  for (PublishedKey& each : f.keys) {
    if (each.name == "first_k_dense_replace") each = mlp_layer_types_key(1);
  }
  drop_keys(f, {"topk_method"});
  std::erase_if(f.only,
                [](const Only& each) { return each.name == "mlp_layer_types" || each.name == "topk_method"; });
  f.read_besides.insert(f.read_besides.end(), {"first_k_dense_replace", "topk_method"});
  f.rewrite = rewrite_axk1;
  f.complete = complete_axk1;
  f.further = copies_axk1;
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && c.experts_sum_norm && c.has_experts() && !c.selects() && !c.recurs() &&
           c.q_lora_rank > 0;
  };
  // Dense layers have a norm of that name, which nothing reads.
  f.passed_over = [](std::string_view name, const HasTensor& has) {
    constexpr std::string_view kNorm = "post_mlp_layernorm.weight";
    if (!name.ends_with(kNorm)) return false;
    const std::string prefix(name.substr(0, name.size() - kNorm.size()));
    return has(prefix + "mlp.gate_proj.weight");
  };
  f.presets = {{"a.x-k1", axk1_519b()}};
  return f;
}

Family kimi_k25() {
  Family f = beside_pictures(kimi_k2(), "KimiK25ForConditionalGeneration", "kimi_k25");
  f.also_architecture = "Kimi_K25ForConditionalGeneration";
  f.rewrite = rewrite_kimi_k25;
  f.spelt = spelt_ahead_of_model;
  f.also_spelt = spelt_in_blocks;
  return f;
}

}  // namespace heddle::config
