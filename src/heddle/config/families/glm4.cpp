// GLM-4.5, 4.6 and 4.7: grouped attention, of whose heads the first half has positions, and DeepSeek-V3's router
// and shared experts. Solar Open is the same with experts in every layer and whole heads that have positions. So is
// Sarvam 30B, with dense layers first and normed queries and keys; its files have the names of Ling's.
//
// Sources: Glm4MoeConfig, SolarOpenConfig and SarvamMoEConfig of Transformers 5, gone through key by key; arXiv
// 2508.06471, table 1; the config.json files released with GLM-4.5, GLM-4.5-Air and GLM-4.7.
#include "heddle/config/families/grouped_keys.h"
#include "heddle/config/families/prediction_layers.h"
#include "heddle/config/families/rope_json.h"
#include "heddle/config/families/turned_windows.h"

namespace heddle::config {

namespace {

using model::ModelConfig;

void rename_glm4(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_local_experts", "n_routed_experts"}, {"num_mtp_layers", "num_nextn_predict_layers"}});
}

void complete(ModelConfig& c, const std::string& path, std::vector<std::string>* warnings) {
  count_prediction_layers(c, path, warnings);
  if (!c.bias_update_rate) c.bias_update_rate = 0.001;  // section 2.3, for the first 15 trillion tokens
}

ModelConfig air() {
  ModelConfig c = sized(grouped_base(), {151552, 4096, 46, 10944, 96, 8, 131072, 128});
  c.first_k_dense_replace = 1;
  c.rms_norm_eps = 1e-5;
  c.partial_rotary_factor = 0.5;
  c.attention_bias = model::AttentionBias::qkv;
  c.rope_theta = 1e6;
  give_experts(c, {.experts = 128, .chosen = 8, .width = 1408, .shared = 1});
  c.sigmoid_scores = c.topk_bias = true;
  c.num_nextn_predict_layers = 1;
  c.bias_update_rate = 0.001;
  return c;
}

ModelConfig solar() {
  ModelConfig c = air();
  c.vocab_size = 196608;
  c.num_hidden_layers = 48;
  c.intermediate_size = ModelConfig().intermediate_size;
  c.first_k_dense_replace = 0;
  c.num_attention_heads = 64;
  c.partial_rotary_factor = 1;
  c.attention_bias = model::AttentionBias::none;
  c.moe_intermediate_size = 1280;
  c.num_nextn_predict_layers = 0;
  c.bias_update_rate.reset();
  return c;
}

ModelConfig sarvam_30b() {
  ModelConfig c = sized(grouped_base(), {262144, 4096, 19, 8192, 64, 4, 131072, 64});
  c.first_k_dense_replace = 1;
  c.initializer_range = 0.006;
  c.qk_norm = true;
  c.rope_theta = 8e6;
  give_experts(c, {.experts = 128, .chosen = 6, .width = 1024, .shared = 1});
  c.sigmoid_scores = c.topk_bias = true;
  c.routed_scaling_factor = 2.5;
  return c;
}

void rename_sarvam_moe(Json& root, const std::string& place) {
  join_names(root, place,
             {{"num_experts", "n_routed_experts"},
              {"num_local_experts", "n_routed_experts"},
              {"num_shared_experts", "n_shared_experts"},
              {"use_qkv_bias", "attention_bias"}});
}

void adopt_sarvam_moe(Json& root, const std::string& place, std::vector<std::string>* warnings) {
  adopt_router_loss(root, place, warnings);
  skip_prediction_layers(root, place, {"num_nextn_predict_layers", "num_mtp_layers"}, warnings);
}

ModelConfig whole_glm4() {
  ModelConfig c = air();
  c.hidden_size = 5120;
  c.num_hidden_layers = 92;
  c.intermediate_size = 12288;
  c.first_k_dense_replace = 3;
  c.qk_norm = true;
  c.n_routed_experts = 160;
  c.moe_intermediate_size = 1536;
  c.routed_scaling_factor = 2.5;
  return c;
}

}  // namespace

Family glm4_moe() {
  Family f = grouped_family("Glm4MoeForCausalLM", "glm4_moe", 1e-5);
  f.base.sigmoid_scores = f.base.topk_bias = true;
  add_keys(f, {
                  partial_rotary_key(0.5),
                  attention_bias_key(model::AttentionBias::qkv),
                  key("use_qk_norm", "qk_norm", false),
                  key("first_k_dense_replace", "first_k_dense_replace", 1),
                  key("n_routed_experts", "n_routed_experts", 128),
                  key("num_experts_per_tok", "num_experts_per_tok", 8),
                  key("n_shared_experts", "n_shared_experts", 1, 0),
                  key("moe_intermediate_size", "moe_intermediate_size", 1408),
                  key("n_group", "n_group", 1),
                  key("topk_group", "topk_group", 1),
                  key("norm_topk_prob", "norm_topk_prob", true, false),
                  key("routed_scaling_factor", "routed_scaling_factor", 1.0),
                  key("num_nextn_predict_layers", "num_nextn_predict_layers", 0),
              });
  f.read_besides = {"num_local_experts", "num_mtp_layers"};
  f.rewrite = rename_glm4;
  f.complete = complete;
  f.holds = [](const ModelConfig& c) {
    return !c.is_latent() && c.has_experts() && c.sigmoid_scores && c.attention_bias != model::AttentionBias::all;
  };
  f.further = prediction_copies;
  f.repeats = repeated_by_predictions;
  ModelConfig longer = whole_glm4();
  longer.max_position_embeddings = 202752;
  f.presets = {{"glm-4.5", whole_glm4()}, {"glm-4.5-air", air()}, {"glm-4.6", longer}, {"glm-4.7", longer}};
  return f;
}

Family solar_open() {
  Family f = glm4_moe();
  f.architecture = "SolarOpenForCausalLM";
  f.model_type = "solar_open";
  f.base.rope_theta = 1e6;
  drop_keys(f, {"partial_rotary_factor", "use_qk_norm", "first_k_dense_replace", "intermediate_size",
                "num_nextn_predict_layers"});
  require_keys(f, {"moe_intermediate_size"});
  f.only = {is("first_k_dense_replace", 0, "every layer has experts"),
            off("use_qk_norm", "norms of queries and keys are not built")};
  f.read_besides = {"num_local_experts", "intermediate_size"};
  f.rewrite = [](Json& root, const std::string& place) {
    join_names(root, place, {{"num_local_experts", "n_routed_experts"}});
  };
  f.complete = nullptr;
  f.derive = [](ModelConfig& c) { c.first_k_dense_replace = 0; };
  f.holds = [](const ModelConfig&) { return false; };  // it is written as GLM-4.5
  f.presets = {{"solar-open-100b", solar()}};
  return f;
}

Family sarvam_moe() {
  Family f = glm4_moe();
  f.architecture = "SarvamMoEForCausalLM";
  f.also_architecture = "Glm4MoeForCausalLM";
  f.model_type = "sarvam_moe";
  f.base.rope_theta = 8e6;
  drop_keys(f, {"num_nextn_predict_layers"});
  replace_keys(f, {key("rms_norm_eps", "rms_norm_eps", 1e-6), key("initializer_range", "initializer_range", 0.006),
                   key("num_key_value_heads", "num_key_value_heads", 4), key("head_dim", "head_dim", 64),
                   partial_rotary_key(1.0), key("use_qk_norm", "qk_norm", true),
                   key("num_experts_per_tok", "num_experts_per_tok", 6),
                   key("moe_intermediate_size", "moe_intermediate_size", 1024),
                   key("routed_scaling_factor", "routed_scaling_factor", 2.5)});
  f.only = {off("use_bias", "a bias of attention's output is not built"),
            is("use_rmsnorm", true, "norms are root-mean-square norms"),
            is("score_function", "sigmoid", "scores are sigmoids"),
            is("moe_router_enable_expert_bias", true, "the choice has a bias"),
            off("embedding_dropout", "dropout is not built"),
            off("output_dropout", "dropout is not built"),
            {"moe_shared_expert_intermediate_size",
             [](const Json& v, const Json& root) { return v == root.value("moe_intermediate_size", Json(1024)); },
             "shared experts are as wide as the others"}};
  f.read_besides = {"num_experts",  "num_local_experts",    "num_shared_experts",
                    "use_qkv_bias", "num_mtp_layers",       "num_nextn_predict_layers",
                    "router_dtype", "output_router_logits", "attn_implementation"};
  f.rewrite = rename_sarvam_moe;
  f.adopt = adopt_sarvam_moe;
  f.complete = nullptr;
  f.holds = [](const ModelConfig&) { return false; };  // it is written as dots.llm1 or GLM-4.5
  f.presets = {{"sarvam-30b", sarvam_30b()}};
  return f;
}

}  // namespace heddle::config
