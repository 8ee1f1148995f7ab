// DeepSeek-V3, Kimi K2, which is one of its size, and DeepSeek-V2, which is put into V3's words first.
//
// Sources: the config.json files released with DeepSeek-V2-Lite and DeepSeek-V3; DeepseekV2Config and
// DeepseekV3Config of Transformers 5, gone through key by key; the code released with the models.
#include "heddle/base/error.h"
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/formats/json_text.h"

namespace heddle::config {

namespace {

using model::ModelConfig;
using Written = nlohmann::ordered_json;

// The sum of sizes that the file itself gives; files with other types are refused where those are read.
Only sum_of(const char* name, std::vector<const char*> keys, const char* reason) {
  const auto accepted = [keys](const Json& value, const Json& root) {
    int64_t sum = 0;
    for (const char* key : keys) {
      const auto at = root.find(key);
      if (at == root.end() || !at->is_number_integer() || at->get<double>() > 1e15 || at->get<double>() < -1e15) {
        return true;
      }
      sum += at->get<int64_t>();
    }
    return value == sum;
  };
  return {name, accepted, reason};
}

void read_queries(const JsonKeys& keys, ModelConfig& c) {
  if (!keys.contains("q_lora_rank")) {
    config_error("{}: 'q_lora_rank' is missing; null stands for queries projected directly", keys.place());
  }
  c.q_lora_rank = keys.whole("q_lora_rank", 0);
}

Written write_queries(const ModelConfig& c) {
  return c.q_lora_rank > 0 ? Written(c.q_lora_rank) : Written(nullptr);
}

void rewrite_v3(Json& json, const std::string& place) {
  join_names(json, place,
             {{"num_local_experts", "n_routed_experts"},
              {"num_experts", "n_routed_experts"},
              {"num_mtp_layers", "num_nextn_predict_layers"}});
}

// Words of V2's topk_method: the best experts, or those of groups that rank by their best.
constexpr const char *kOfAllGroups = "greedy", *kOfBestGroups = "group_limited_greedy";

// Softmax scores, no bias on the choice, other defaults.
void rewrite_v2(Json& json, const std::string& place) {
  rewrite_v3(json, place);
  const auto or_default = [&](const char* key, const Json& standard) -> Json& {
    Json& value = json[key];
    if (value.is_null()) value = standard;
    return value;
  };
  or_default("scoring_func", "softmax");
  or_default("n_group", 1), or_default("topk_group", 1);
  if (or_default("topk_method", kOfAllGroups) == kOfAllGroups) json["n_group"] = json["topk_group"] = 1;
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
}

void adopt_v2(Json& json, const std::string& place, std::vector<std::string>* warnings) {
  const Json alpha = json.value("aux_loss_alpha", Json());
  if (alpha.is_number() && json.value("seq_aux", Json(true)) == true) {
    json["heddle"].emplace("sequence_aux_loss_alpha", alpha);
  } else if (alpha.is_number() && alpha != 0 && warnings != nullptr) {
    warnings->push_back(
        fmt::format("{}: 'aux_loss_alpha' is {} over the whole batch (seq_aux is false), which is not "
                    "built: taken as 0",
                    place, formats::shown(alpha)));
  }
}

void adopt_v3(Json& json, const std::string& place, std::vector<std::string>* warnings) {
  if (json.value("heddle", Json()).is_null() && json.value("scoring_func", Json()) == "softmax") {
    config_error("{}: 'scoring_func' is \"softmax\": the V3 family has \"sigmoid\"", place);
  }
  adopt_v2(json, place, warnings);
}

void complete_v3(ModelConfig& config, const std::string& path, std::vector<std::string>* warnings) {
  count_prediction_layers(config, path, warnings);
  if (!config.bias_update_rate) config.bias_update_rate = 0.001;  // for all but the last of the report's steps
}

// DeepSeek-AI, arXiv 2405.04434, appendix B.
ModelConfig v2_lite() {
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
  c.rope_scaling = model::RopeScaling{.factor = 40, .mscale = 0.707, .mscale_all_dim = 0.707};
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

// DeepSeek-AI, arXiv 2405.04434, section 3.1, and the released config.json.
ModelConfig v2() {
  ModelConfig c = v2_lite();
  c.hidden_size = 5120;
  c.num_hidden_layers = 60;
  c.intermediate_size = 12288;
  c.num_attention_heads = 128;
  c.q_lora_rank = 1536;
  c.rope_scaling->mscale = c.rope_scaling->mscale_all_dim = 1;
  c.n_routed_experts = 160;
  c.moe_intermediate_size = 1536;
  c.n_group = 8;
  c.topk_group = 3;
  c.group_score_top = 1;
  c.routed_scaling_factor = 16;
  return c;
}

// DeepSeek-AI, arXiv 2412.19437, section 4.2.
ModelConfig v3() {
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
  c.rope_scaling = model::RopeScaling{.factor = 40, .mscale = 1, .mscale_all_dim = 1};
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

// The config.json released with Kimi-K2-Instruct.
ModelConfig k2() {
  ModelConfig c = v3();
  c.vocab_size = 163840;
  c.first_k_dense_replace = 1;
  c.max_position_embeddings = 131072;
  c.num_attention_heads = 64;
  c.rope_theta = 50000;
  c.rope_scaling =
      model::RopeScaling{.factor = 32, .beta_fast = 1, .beta_slow = 1, .mscale = 1, .mscale_all_dim = 1};
  c.n_routed_experts = 384;
  c.n_group = c.topk_group = 1;
  c.routed_scaling_factor = 2.827;
  c.num_nextn_predict_layers = 0;
  c.sequence_aux_loss_alpha = 0.001;
  return c;
}

ModelConfig glm_flash() {
  ModelConfig c;
  c.vocab_size = 154880;
  c.hidden_size = 2048;
  c.num_hidden_layers = 47;
  c.intermediate_size = 10240;
  c.rms_norm_eps = 1e-5;
  c.max_position_embeddings = 202752;
  c.num_attention_heads = 20;
  c.q_lora_rank = 768;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 192;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 256;
  c.rope_theta = 1e6;
  c.n_routed_experts = 64;
  c.num_experts_per_tok = 4;
  c.moe_intermediate_size = 1536;
  c.routed_scaling_factor = 1.8;
  c.num_nextn_predict_layers = 1;
  return c;
}

}  // namespace

Family deepseek_v3() {
  Family f;
  f.architecture = "DeepseekV3ForCausalLM";
  f.model_type = "deepseek_v3";
  // A flag of null is off to Transformers. What is absent is what Transformers takes it for; no shared experts are
  // 0, or null in old files.
  f.keys = {
      key("vocab_size"),
      key("hidden_size"),
      key("num_hidden_layers"),
      key("intermediate_size"),
      key("first_k_dense_replace"),
      fixed("moe_layer_freq", 1),
      fixed("hidden_act", "silu"),
      key("rms_norm_eps", "rms_norm_eps", 1e-6),
      key("initializer_range", "initializer_range", 0.02),
      key("tie_word_embeddings", "tie_word_embeddings", false),
      key("max_position_embeddings"),
      fixed("attention_bias", false),
      fixed("attention_dropout", 0.0),
      key("num_attention_heads"),
      {.name = "num_key_value_heads", .write = [](const ModelConfig& c) { return Written(c.num_attention_heads); }},
      {.name = "q_lora_rank", .ours = "q_lora_rank", .read = read_queries, .write = write_queries},
      key("kv_lora_rank"),
      key("qk_nope_head_dim"),
      key("qk_rope_head_dim"),
      key("v_head_dim"),
      rope_theta_key(),
      key("rope_interleave", "rope_interleave", true, false),
      rope_scaling_key(),
      key("n_routed_experts"),
      key("num_experts_per_tok"),
      key("n_shared_experts", "n_shared_experts", 1, 0),
      key("moe_intermediate_size"),
      key("n_group", "n_group", 8),
      key("topk_group", "topk_group", 4),
      key("norm_topk_prob", "norm_topk_prob", true, false),
      {.name = "scoring_func",  // V3 has sigmoid scores alone: others stand in "heddle" too
       .read = [](const JsonKeys& keys,
                  ModelConfig& c) { c.sigmoid_scores = keys.word("scoring_func", "sigmoid") == "sigmoid"; },
       .write = [](const ModelConfig& c) { return Written(c.sigmoid_scores ? "sigmoid" : "softmax"); }},
      fixed("topk_method", "noaux_tc"),
      key("routed_scaling_factor", "routed_scaling_factor", 2.5),
      key("num_nextn_predict_layers", "num_nextn_predict_layers", 0),
  };
  f.only = {
      is("moe_layer_freq", 1, "every layer after the dense ones has experts"),
      is("topk_method", "noaux_tc", "only 'noaux_tc' is built"),
      {"scoring_func",
       [](const Json& v, const Json& root) {
         return v == "sigmoid" || (v == "softmax" && root.contains("heddle"));
       },
       "the V3 family has 'sigmoid'"},
      sum_of("num_key_value_heads", {"num_attention_heads"}, "latent attention has as many as heads"),
      sum_of("head_dim", {"qk_rope_head_dim"},
             "it stands for the rotated part of a head and must equal qk_rope_head_dim"),
      sum_of("qk_head_dim", {"qk_nope_head_dim", "qk_rope_head_dim"},
             "it must be the sum of qk_nope_head_dim and qk_rope_head_dim"),
      never("mlp_layer_types", "first_k_dense_replace alone says which layers are dense"),
      never("index_topk", "models that select keys are of model_type deepseek_v32 or glm_moe_dsa"),
  };
  f.read_besides = {"aux_loss_alpha", "seq_aux", "num_local_experts", "num_experts", "num_mtp_layers"};
  f.holds = [](const ModelConfig& c) { return c.is_latent(); };
  f.rewrite = rewrite_v3;
  f.adopt = adopt_v3;
  f.complete = complete_v3;
  f.further = prediction_copies;
  f.repeats = repeated_by_predictions;
  f.presets = {{"deepseek-v3", v3()}};
  return f;
}

// Kimi K2 (Moonshot AI, arXiv 2507.20534): more experts in one group, fewer heads, no further tokens.
Family kimi_k2() {
  Family f = deepseek_v3();
  f.model_type = "kimi_k2";
  f.presets = {{"kimi-k2", k2()}};
  f.holds = [](const ModelConfig&) { return false; };  // it is written as V3
  return f;
}

// GLM-4.7-Flash (config.json of the release; Glm4MoeLiteConfig of Transformers 5): V3 with a word a layer that says
// which are dense, and other defaults.
Family glm4_moe_lite() {
  Family f = deepseek_v3();
  f.architecture = "Glm4MoeLiteForCausalLM";
  f.model_type = "glm4_moe_lite";
  replace_keys(f, {key("rms_norm_eps", "rms_norm_eps", 1e-5), key("n_group", "n_group", 1),
                   key("topk_group", "topk_group", 1), key("routed_scaling_factor", "routed_scaling_factor", 1.8)});
  for (PublishedKey& each : f.keys) {
    if (each.name == "first_k_dense_replace") each = mlp_layer_types_key(1);
  }
  std::erase_if(f.only, [](const Only& each) { return each.name == "mlp_layer_types"; });
  f.read_besides.push_back("first_k_dense_replace");
  f.presets = {{"glm-4.7-flash", glm_flash()}};
  f.holds = [](const ModelConfig&) { return false; };  // it is written as V3
  return f;
}

Family deepseek_v2() {
  Family f = deepseek_v3();
  f.architecture = "DeepseekV2ForCausalLM";
  f.model_type = "deepseek_v2";
  f.presets = {{"deepseek-v2", v2()}, {"deepseek-v2-lite", v2_lite()}};
  f.rewrite = rewrite_v2;
  f.adopt = adopt_v2;
  f.complete = count_prediction_layers;
  f.further = nullptr;
  f.repeats = nullptr;
  replace_keys(
      f, {{.name = "topk_method",
           .read =
               [](const JsonKeys&, ModelConfig& c) {
                 c.topk_bias = false;
                 if (c.n_group > 1) c.group_score_top = 1;
               },
           .write = [](const ModelConfig& c) { return Written(c.n_group > 1 ? kOfBestGroups : kOfAllGroups); }}});
  for (Only& each : f.only) {
    if (each.name == "scoring_func") each = is("scoring_func", "softmax", "the V2 family has 'softmax'");
    if (each.name != "topk_method") continue;
    each.accepted = [](const Json& v, const Json&) { return v == kOfAllGroups || v == kOfBestGroups; };
    each.reason = "the V2 family has 'greedy' and 'group_limited_greedy'";
  }
  f.said.insert(f.said.end(), {"sigmoid_scores", "topk_bias", "group_score_top"});
  f.holds = [](const ModelConfig& c) {
    return c.is_latent() && !c.sigmoid_scores && !c.softplus_scores && !c.topk_bias && !c.norm_topk_prob &&
           c.rope_interleave && c.num_nextn_predict_layers == 0 && c.group_score_top == (c.n_group > 1 ? 1 : 2);
  };
  return f;
}

}  // namespace heddle::config
