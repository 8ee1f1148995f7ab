// Keys of published files whose meaning in Transformers is not the plain one: they are read so, or refused.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>

#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/model/rope_table.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

class FamilyKeys : public ReleasedConfig {
 protected:
  static Json file(const std::string& type) {
    Json json =
        Json::parse(R"({"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128})");
    json["model_type"] = type;
    const std::map<std::string, const char*> more{
        {"minimax_m2", R"({"num_local_experts": 8, "num_experts_per_tok": 2, "rotary_dim": 8})"},
        {"gemma3_text", R"({"sliding_window": 16})"},
        {"gemma4_text", R"({"sliding_window": 16, "global_head_dim": 8, "hidden_size_per_layer_input": 0})"},
        {"granitemoe", R"({"num_local_experts": 8})"},
        {"qwen3_5_moe_text", R"({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                                 "shared_expert_intermediate_size": 32})"},
        {"solar_open", R"({"moe_intermediate_size": 32})"},
        {"ernie4_5_moe", R"({"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32})"},
        {"dots1", R"({"n_routed_experts": 8, "num_experts_per_tok": 2, "sliding_window": null})"},
        {"hunyuan_v1_moe", R"({"num_experts": 8, "moe_topk": 2})"},
        {"bailing_moe", R"({"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                            "partial_rotary_factor": 0.5})"},
        {"step3p5",
         R"({"num_key_value_heads": null, "num_attention_groups": 2, "moe_num_experts": 8, "moe_top_k": 2,
                        "moe_layers_enum": "1,2,3", "sliding_window": 16, "rope_theta": [100, 10, 10, 10],
                        "layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                                        "sliding_attention"]})"},
        {"hy_v3", R"({"num_experts": 8, "num_experts_per_tok": 2})"},
        {"longcat_flash", R"({"num_key_value_heads": 4, "head_dim": 8, "q_lora_rank": 24, "kv_lora_rank": 16,
                              "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8,
                              "zero_expert_num": 4, "moe_topk": 3, "expert_ffn_hidden_size": 32})"},
        {"mimo_v2_flash", R"({"n_routed_experts": 8, "num_experts_per_tok": 2, "v_head_dim": 8,
                              "sliding_window": 16, "partial_rotary_factor": 0.5})"},
        {"qwen2_moe", R"({"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                          "shared_expert_intermediate_size": 48})"}};
    if (const auto at = more.find(type); at != more.end()) json.update(Json::parse(at->second));
    return json;
  }
  std::string message(const std::string& type, const std::string& change) {
    return ReleasedConfig::message(file(type), change);
  }
};

TEST_F(FamilyKeys, AreRefused) {
  const struct {
    const char *type, *change, *part;
  } cases[] = {
      {"gemma3_text", R"({"rope_parameters": {"sliding_attention": {"type": "linear", "factor": 2}}})",
       "only 'default' is built"},
      {"gemma3_text", R"({"rope_parameters": {"full_attention": {"rope_theta": 5, "alpha": 2}}})",
       "'rope_parameters.full_attention.alpha' is not known"},
      {"gemma3_text", R"({"rope_parameters": {"full_attention": {}, "chunked_attention": {}}})",
       "'rope_parameters.chunked_attention' is not known"},
      {"gemma3_text", R"({"rope_parameters": {"full_attention": 3}})", "an object is expected"},
      {"gemma3_text", R"({"rope_parameters": {"rope_type": "linear", "factor": 2}})",
       "'rope_parameters.factor' is not known"},
      {"gemma3_text", R"({"rope_scaling": {"type": "linear", "factor": 2}})", "reads 'rope_scaling.rope_type'"},
      {"gemma3_text", R"({"rope_scaling": {"rope_type": "linear", "factor": 2},
                          "rope_parameters": {"full_attention": {}}})",
       "are both given"},
      {"gemma3_text", R"({"original_max_position_embeddings": 64,
                          "rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2}}})",
       "stands outside the rotary keys"},
      {"gemma3_text", R"({"query_pre_attn_scalar": 0})", "a number above 0 is expected"},
      {"gemma3_text", R"({"rope_local_base_freq": 0})", "a number above 0 is expected"},
      {"gemma3_text", R"({"sliding_window_pattern": 0})", "a number above 0 is expected"},
      {"gemma3_text", R"({"sliding_window": null})", "'sliding_window' is null"},
      {"gemma3_text", R"({"sliding_window": 0, "layer_types": ["sliding_attention", "full_attention",
                          "full_attention", "full_attention"]})",
       "without a window each of 4 layers"},
      {"dots1", R"({"layer_types": ["full_attention", "full_attention", "full_attention", "sliding_attention"]})",
       "without a window each of 4 layers"},
      {"gemma3_text", R"({"num_hidden_layers": 549755813888, "layer_types": ["full_attention"]})",
       "a word for each of 549755813888 layers"},
      {"gemma4_text", R"({"use_bidirectional_attention": "all"})", "both directions"},
      {"gemma4_text",
       R"({"rope_parameters": {"sliding_attention": {"rope_type": "proportional", "rope_theta": 5}}})",
       "accepted: 'default'"},
      {"gemma4_text", R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 5}}})",
       "accepted: 'default' and 'proportional'"},
      {"gemma4_text", R"({"per_layer_config": {"00": {"head_dim": 8}}})", "and for no other"},
      {"gemma4_text", R"({"per_layer_config": {"03": {"sliding_window": 8}}})", "and for no other"},
      {"gemma4_text", R"({"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 7})",
       "'vocab_size' is expected"},
      {"gemma4_text", R"({"num_kv_shared_layers": 2})", "a layer with full attention before those that share"},
      {"gemma4_text", R"({"enable_moe_block": true, "use_double_wide_mlp": true})", "of one width"},
      {"gemma4_text", R"({"full_rope_theta": 5})", "is no key of Gemma 4"},
      {"gemma2", R"({"attn_logit_softcapping": 0})", "a number above 0 is expected"},
      {"gemma2", R"({"sliding_window": null})", "'sliding_window' is null"},
      {"gemma2", R"({"use_bidirectional_attention": true})", "both directions"},
      {"gemma2", R"({"hidden_activation": "gelu"})", "only 'gelu_pytorch_tanh' is built"},
      {"gemma", R"({"hidden_act": "silu"})", "only 'gelu_pytorch_tanh' is built"},
      {"gemma", R"({"use_bidirectional_attention": true})", "both directions"},
      {"llama", R"({"attn_logit_softcapping": 50.0})", "capped logits are not built"},
      {"olmo3", R"({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2}}})",
       "only 'default' is built"},
      {"cwm", R"({"layer_types": ["sliding_attention"]})", "a word for each of 4 layers"},
      {"smollm3", R"({"no_rope_layers": [1, 0, 2, 1]})", "or 0 where it turns nothing"},
      {"smollm3", R"({"no_rope_layers": [1, 0]})", "each of 4 layers has 1"},
      {"exaone4",
       R"({"layer_types": ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]})",
       "in other layers than every n-th"},
      {"exaone4", R"({"sliding_window_pattern": "LLGL"})", "one G behind them"},
      {"phi3", R"({"rope_scaling": {"type": "longrope"}})", "'rope_scaling.short_factor' is missing, a list"},
      {"phi3", R"({"rope_scaling": {"type": "yarn", "short_factor": [1]}})",
       "'rope_scaling.long_factor' is missing"},
      {"phi3", R"({"rope_scaling": {"type": "su", "short_factor": [1, "1"]}})", "is [1,\"1\"], a list of numbers"},
      {"phi3", R"({"rope_scaling": {"rope_type": "linear", "factor": 2}})",
       "accepted are 'default' and 'longrope'"},
      {"phi3", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1]}})",
       "short_factor has 2 numbers, must be 8 numbers"},
      {"phi3", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                                    "long_factor": [1, 1, 1, 1, 1, 1, 1, 0]}})",
       "long_factor has 0, must be from"},
      {"phi3", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "beta_fast": 2,
                                    "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}})",
       "'rope_scaling.beta_fast' is not known"},
      {"phi3", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "short_mscale": 2,
                                    "long_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_mscale": 2}})",
       "they are of model.sparse_mixer"},
      {"hunyuan_v1_dense", R"({"use_cla": true})", "shared by layers"},
      {"longcat_flash", R"({"num_hidden_layers": 3})", "a layer holds two layers of attention"},
      {"longcat_flash", R"({"num_layers": 3})", "a layer holds two layers of attention"},
      {"longcat_flash", R"({"num_hidden_layers": null})", "'num_layers' is missing"},
      {"longcat_flash", R"({"ffn_hidden_size": 100})", "they are one key"},
      {"longcat_flash", R"({"zero_expert_type": "copy"})", "give rows back as they are"},
      {"longcat_flash", R"({"mla_scale_q_lora": false})", "scaled latents are built"},
      {"longcat_flash", R"({"router_bias": true})", "computes without it"},
      {"longcat_flash", R"({"norm_topk_prob": true})", "not divided by their sum"},
      {"longcat_flash", R"({"head_dim": 16})", "must equal qk_rope_head_dim"},
      {"longcat_flash", R"({"qk_head_dim": 16})", "the sum of"},
      {"longcat_flash", R"({"moe_topk": 13})", "model.num_experts_per_tok is 13"},
      {"phimoe", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                                      "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}})",
       "short_mscale and long_mscale are 0"},
      {"phimoe", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1],
                                      "short_mscale": 1.2, "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}})",
       "go together, and one is 0"},
      {"phimoe", R"({"rope_parameters": {"rope_type": "linear", "factor": 2}})", "'default' and 'longrope'"},
      {"phimoe", R"({"input_jitter_noise": 0.1})", "noise on the experts' rows"},
      {"phimoe", R"({"num_experts_per_tok": 3})", "model.sparse_mixer needs model.num_experts_per_tok = 2"},
      {"solar_open", R"({"first_k_dense_replace": 1})", "every layer has experts"},
      {"qwen3_5_text", R"({"attn_output_gate": false})", "attention's output has a gate"},
      {"qwen3_5_text", R"({"mtp_use_dedicated_embeddings": true})", "share the embedding"},
      {"qwen3_5_text", R"({"mlp_only_layers": [1]})", "every layer is of one kind"},
      {"qwen3_5_moe_text", R"({"norm_topk_prob": false})", "gates sum to one"},
      {"qwen3_5_moe_text", R"({"shared_expert_intermediate_size": 0})", "a number above 0 is expected"},
      {"granite", R"({"attention_multiplier": 0})", "a number above 0 is expected"},
      {"granite", R"({"layer_types": ["full_attention"]})", "for each layer is built"},
      {"granite", R"({"rope_scaling": {"rope_type": "default", "alpha": 2}})", "'rope_scaling.alpha' is not known"},
      {"granitemoe", R"({"quantization_config": {"quant_method": "awq"}})", "quantised weights are not read"},
      {"qwen2_moe", R"({"shared_expert_intermediate_size": 0})", "a number above 0 is expected"},
      {"ernie4_5_moe", R"({"moe_norm_min": 0.1})", "another floor of the gates' sum"},
      {"ernie4_5_moe", R"({"moe_norm_min": 0})", "another floor of the gates' sum"},
      {"minimax_m2", R"({"rotary_dim": "8"})", "a whole number is expected"},
      {"minimax_m2", R"({"attn_type_list": [1]})", "attention in each layer"},
      {"mimo_v2_flash", R"({"rope_parameters": {"sliding_attention": {"type": "linear", "factor": 2}}})",
       "only 'default' is built"},
      {"mimo_v2_flash", R"({"v_head_dim": 0})", "a number above 0 is expected"},
      {"mimo_v2_flash", R"({"sliding_window_size": 7.0})", "a whole number"},
      {"mimo_v2_flash", R"({"sliding_window_size": true})", "a whole number"},
      {"mimo_v2_flash", R"({"hybrid_layer_pattern": "x"})", "a list of 0 and 1 is expected"},
      {"mimo_v2_flash", R"({"moe_layer_freq": 2})", "a list of 0 and 1 is expected"},
      {"mimo_v2_flash", R"({"moe_layer_freq": [0, 1, 1, 1.0]})", "accepted: 0 and 1"},
      {"mimo_v2_flash",
       R"({"moe_layer_freq": [0, 1, 1, 1], "mlp_layer_types": ["sparse", "sparse", "sparse", "sparse"]})",
       "different things"},
      {"mimo_v2_flash", R"({"swa_head_dim": 8})", "'head_dim'"},
      {"mimo_v2_flash", R"({"swa_v_head_dim": 16})", "'v_head_dim'"},
      {"mimo_v2_flash", R"({"swa_num_attention_heads": 8})", "'num_attention_heads'"},
      {"mimo_v2_flash", R"({"layernorm_epsilon": 0.1})", "'rms_norm_eps'"},
      {"hunyuan_v1_moe", R"({"moe_layer_num_skipped": 1})", "every layer has experts"},
      {"hunyuan_v1_moe", R"({"group_limited_greedy": true})", "groups of experts"},
      {"hunyuan_v1_moe", R"({"moe_drop_tokens": true})", "drop no tokens"},
      {"hunyuan_v1_moe", R"({"routed_scaling_factor": 2})", "gates are not scaled"},
      {"hunyuan_v1_moe", R"({"moe_topk": [2, 2]})", "'moe_topk' has 2 values"},
      {"hunyuan_v1_moe", R"({"rope_scaling": {"type": "dynamic", "alpha": 8, "truncate": true}})",
       "'rope_scaling.truncate' is not known"},
      {"hunyuan_v1_moe", R"({"rope_scaling": {"type": "dynamic", "alpha": 0}})", "must be above 0"},
      {"bailing_moe", R"({"rotary_dim": 16})", "they are one key"},
      {"bailing_moe", R"({"rotary_dim": 8.0})", "a whole number above 0"},
      {"bailing_moe", R"({"norm_topk_prob": false})", "gates sum to one"},
      {"bailing_moe", R"({"use_bias": true})", "attention's output"},
      {"bailing_moe", R"({"moe_router_enable_expert_bias": false})", "the choice has a bias"},
      {"bailing_moe", R"({"moe_shared_expert_intermediate_size": 16})", "as wide as the others"},
      {"step3p5", R"({"rope_theta": [100, 10, 10]})", "a number for each"},
      {"step3p5", R"({"rope_theta": [100, 10, 10, 20]})", "'rope_theta' is 20 of layer 3"},
      {"step3p5", R"({"moe_layers_enum": "1,,3"})", "numbers of layers"},
      {"step3p5", R"({"moe_layers_enum": 3})", "numbers of layers"},
      {"step3p5", R"({"moe_layers_enum": [1.5]})", "numbers of layers"},
      {"step3p5", R"({"mlp_layer_types": ["sparse", "sparse", "sparse", "sparse"]})", "different things"},
      {"step3p5", R"({"swiglu_limits": [0, 7, 0, 7]})", "the first have 0, and the others one limit"},
      {"step3p5", R"({"swiglu_limits_shared": [0, -7, -7, -7]})", "the first have 0, and the others one limit"},
      {"step3p5", R"({"attention_other_setting": {"num_attention_groups": 4}})",
       "the others' 'num_attention_groups'"},
      {"step3p5", R"({"attention_other_setting": {"attention_type": "full_attention"}})", "accepted: 'sliding"},
      {"step3p5", R"({"rope_scaling": {"rope_type": "linear", "factor": 2}})", "are not stretched"},
      {"step3p5", R"({"zero_centered": false})", "1 + their weight"},
      {"step3p5", R"({"use_rope_layers": [1]})", "every layer has rotary positions"},
      {"step3p5", R"({"query_pre_attn_scalar": 8})", "the root of 'head_dim'"},
      {"step3p5", R"({"share_expert_dim": 0})", "a number above 0 is expected"},
      {"step3p5", R"({"window_rotary_factor": 0.5})", "no key of Step-3.5"},
      {"hy_v3", R"({"first_k_dense_replace": 2})", "without 'mlp_layer_types' it is 1"},
      {"hy_v3", R"({"first_k_dense_replace": 2, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]})",
       "has 1 dense layers"},
  };
  for (const auto& [type, change, part] : cases) {
    EXPECT_EQ(message(type, "{}"), "");
    EXPECT_NE(message(type, change).find(part), std::string::npos) << change << ": " << message(type, change);
  }
}

TEST_F(FamilyKeys, AreReadAsInTransformers) {
  const auto expect_read = [&](const char* type, const char* change) {
    EXPECT_EQ(message(type, change), "") << change;
    EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_) << change;
  };
  for (const char* type : {"gemma3_text", "mimo_v2_flash"}) {
    expect_read(type, R"({"rope_parameters": {"full_attention": {"type": "linear", "factor": 4}}})");
    ASSERT_TRUE(read_.rope_scaling.has_value()) << type;
    EXPECT_EQ(read_.rope_scaling->factor, 4);
  }
  EXPECT_FALSE(model_config_to_json(read_).contains("rope_scaling"));  // of MiMo
  expect_read("gemma3_text", R"({"rope_scaling": {"rope_type": "yarn", "factor": 4},
    "_sliding_window_pattern": 6, "cache_implementation": "hybrid"})");
  EXPECT_EQ(model_config_to_json(read_)["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  // Null is no cap; absent are Gemma 2's own.
  expect_read("gemma2", R"({"attn_logit_softcapping": null, "final_logit_softcapping": 2})");
  EXPECT_EQ(read_.attention_logit_cap, 0);
  EXPECT_EQ(read_.final_logit_cap, 2);
  expect_read("gemma2", "{}");
  EXPECT_EQ(read_.attention_logit_cap, 50);
  EXPECT_EQ(read_.final_logit_cap, 30);
  EXPECT_EQ(read_.attention_scale, 0.0625);
  EXPECT_EQ(read_.window_of(0), 4096);
  EXPECT_EQ(read_.window_of(1), 0);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "gemma2");
  EXPECT_EQ(why_unpublished(read_), "");
  // The first release of Gemma says "gelu" and means the approximation.
  expect_read("gemma", R"({"hidden_act": "gelu"})");
  EXPECT_EQ(read_.activation, model::Activation::geglu_tanh);
  EXPECT_EQ(model_config_to_json(read_)["hidden_act"], "gelu_pytorch_tanh");
  // Of OLMo 3's files only full attention is stretched.
  expect_read("olmo3", R"({"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.2,
    "original_max_position_embeddings": 32}, "rope_theta": 500000})");
  EXPECT_EQ(read_.window_rope_theta, 5e5);
  EXPECT_EQ(read_.rope_scaling->attention_factor, 1.2);
  EXPECT_EQ(read_.window_of(2), 4096);
  EXPECT_EQ(read_.window_of(3), 0);
  EXPECT_EQ(model_config_to_json(read_)["rope_parameters"]["full_attention"]["rope_type"], "yarn");
  EXPECT_FALSE(read_.with_rotation_of_windows().rope_scaling.has_value());
  // Without rotary keys CWM has its own.
  expect_read("cwm", "{}");
  EXPECT_EQ(read_.rope_scaling->factor, 16);
  EXPECT_EQ(read_.window_of(0), 0);
  EXPECT_EQ(read_.window_of(1), 8192);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "cwm");
  expect_read("smollm3", R"({"no_rope_layers": [1, 1, 0, 1], "no_rope_layer_interval": 2})");
  EXPECT_EQ(read_.no_rope_layer_interval, 3);
  EXPECT_FALSE(read_.turns_in(2));
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "smollm3");
  expect_read("smollm3", R"({"no_rope_layers": [1, 0, 0, 1]})");
  EXPECT_EQ(read_.rotation_pattern, "R--R");
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "smollm3");
  expect_read("step3p5", R"({"moe_layers_enum": "1,3"})");
  EXPECT_EQ(read_.mlp_pattern, "-E-E");
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "step3p5");
  expect_read("smollm3", R"({"no_rope_layers": [1, 1, 1, 1]})");
  EXPECT_TRUE(read_.turns_in(3));
  expect_read("smollm3", "{}");
  EXPECT_FALSE(read_.turns_in(3));
  expect_read("exaone4", R"({"sliding_window_pattern": "LG"})");
  EXPECT_EQ(read_.window_of(0), 4096);
  EXPECT_TRUE(read_.turns_in(0));
  EXPECT_FALSE(read_.turns_in(1));
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "exaone4");
  expect_read("exaone4", R"({"sliding_window": null})");
  EXPECT_TRUE(read_.turns_in(3));
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "exaone4");
  expect_read("phi3", R"({"sliding_window": 7})");
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "mistral");
  expect_read("phi3", R"({"sliding_window": null, "rope_scaling": null})");
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "llama");
  // The original length outside goes first, or is 4096, whatever stands inside.
  const std::string factors =
      R"("short_factor": [1, 2, 1, 1, 1, 1, 1, 1], "long_factor": [1, 4, 1, 1, 1, 1, 1, 1])";
  const std::string old = R"({"max_position_embeddings": 128, "original_max_position_embeddings": 32,
                              "rope_scaling": {"type": "su", "original_max_position_embeddings": 8, )";
  expect_read("phi3", (old + factors + "}}").c_str());
  EXPECT_EQ(read_.rope_scaling->type, model::RopeType::longrope);
  EXPECT_EQ(read_.rope_scaling->factor, 4);
  EXPECT_EQ(read_.rope_scaling->original_max_position_embeddings, 32);
  EXPECT_NEAR(read_.rope_scaling->rotary_scale(1), std::sqrt(1 + std::log(4) / std::log(32)), 1e-15);
  // A table's length chooses the factors of all its rows: of row 1, pair 1.
  const auto turn = [&](int64_t length) {
    const std::vector<double> table = model::rope_table(read_, length);
    return std::atan2(table[16 + 8 + 1], table[16 + 1]);
  };
  const double plain = std::pow(10000, -2.0 / 16);
  EXPECT_NEAR(turn(32), plain / 2, 1e-12);
  EXPECT_NEAR(turn(33), plain / 4, 1e-12);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "llama");
  EXPECT_EQ(model_config_to_json(read_)["rope_scaling"]["long_factor"][1], 4);
  expect_read("phi3", R"({"partial_rotary_factor": 0.5, "rope_parameters": {"type": "longrope", "factor": 8,
                          "short_factor": [1, 2, 1, 1], "long_factor": [1, 2, 1, 1], "attention_factor": 1.5}})");
  EXPECT_EQ(read_.rope_scaling->original_max_position_embeddings, 4096);
  EXPECT_EQ(read_.rope_scaling->rotary_scale(1), 1.5);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "phi3");
  EXPECT_EQ(model_config_to_json(read_)["original_max_position_embeddings"], 4096);
  const std::string scaled = R"({"rope_scaling": {"type": "longrope", "original_max_position_embeddings": 32,
                                 "short_mscale": 1.1, "long_mscale": 1.3, )";
  expect_read("phimoe", (scaled + factors + "}}").c_str());
  EXPECT_EQ(read_.rope_scaling->rotary_scale(32), 1.1);
  EXPECT_EQ(read_.rope_scaling->rotary_scale(33), 1.3);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "phimoe");
  // 12B: Gemma 4 without embeddings of layers and without experts.
  expect_read("gemma4_unified_text", "{}");
  EXPECT_EQ(read_.layer_embedding_size, 0);
  EXPECT_EQ(read_.sliding_window, 1024);
  EXPECT_FALSE(read_.has_experts());
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "gemma4_text");
  EXPECT_EQ(model_config_to_json(read_)["hidden_size_per_layer_input"], 0);
  expect_read("longcat_flash", R"({"mla_scale_q_lora": true, "router_bias": false, "num_hidden_layers": 4})");
  EXPECT_TRUE(read_.begins_pair(2));
  EXPECT_FALSE(read_.is_moe(3));
  EXPECT_EQ(read_.choices(), 12);
  EXPECT_EQ(model_config_to_json(read_)["num_layers"], 2);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "longcat_flash");
  expect_read("longcat_flash", R"({"zero_expert_num": null})");
  EXPECT_EQ(read_.zero_expert_num, 0);
  expect_read("phimoe", R"({"lm_head_bias": true, "sliding_window": 7, "router_jitter_noise": 0.2})");
  EXPECT_TRUE(read_.head_bias);
  EXPECT_EQ(read_.router_jitter_noise, 0.2);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "phimoe");
  // Widths of layers with full attention, as released and as Transformers 5.23 writes them.
  expect_read("gemma4_text", R"({"attention_k_eq_v": true, "num_global_key_value_heads": 1})");
  EXPECT_EQ(read_.head_dim_of(3), 8);
  EXPECT_EQ(read_.head_dim_of(0), 16);
  EXPECT_EQ(read_.kv_heads_of(3), 1);
  EXPECT_TRUE(read_.shares_keys(3));
  EXPECT_FALSE(read_.shares_keys(0));
  EXPECT_EQ(read_.turning_pairs(), 1);
  const model::ModelConfig released = read_;
  expect_read("gemma4_text", R"({"attention_k_eq_v": true, "global_head_dim": null,
                                 "per_layer_config": {"03": {"head_dim": 8, "num_key_value_heads": 1}}})");
  EXPECT_EQ(read_, released);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "gemma4_text");
  expect_read("gemma4_text", R"({"num_global_key_value_heads": 1})");  // as others where keys are not values
  EXPECT_EQ(read_.kv_heads_of(3), 2);
  expect_read("gemma4_text", R"({"layer_types": ["full_attention", "sliding_attention", "sliding_attention",
                                                 "full_attention"], "num_kv_shared_layers": 2,
                                 "use_double_wide_mlp": true, "hidden_size_per_layer_input": 4,
                                 "vocab_size_per_layer_input": null})");
  EXPECT_EQ(read_.key_value_layer(3), 0);
  EXPECT_EQ(read_.mlp_width_of(3), 2 * read_.mlp_width_of(0));
  EXPECT_EQ(model_config_to_json(read_)["use_double_wide_mlp"], true);
  expect_read("hunyuan_v1_dense", "{}");
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "hunyuan_v1_dense");
  expect_read("flex_olmo", R"({"num_experts": 8, "num_experts_per_tok": 2})");
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "flex_olmo");
  expect_read("solar_open", "{}");
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "glm4_moe");
  // Qwen3.5's own text models, and those that stand beside a model of pictures.
  const char* of_pictures = R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e7,
    "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": true},
    "attn_output_gate": true, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": false, "mlp_only_layers": [], "full_attention_interval": 4)";
  for (const char* type : {"qwen3_5_text", "qwen3_5_moe_text"}) {
    expect_read(type, fmt::format("{{{}}}", of_pictures).c_str());
    const model::ModelConfig text = read_;
    EXPECT_EQ(text.partial_rotary_factor, 0.5);
    EXPECT_EQ(text.num_nextn_predict_layers, 1);
    EXPECT_TRUE(text.linear_projections_apart);
    EXPECT_EQ(text.has_experts(), type == std::string("qwen3_5_moe_text"));
    EXPECT_EQ(model_config_to_json(read_)["model_type"], type);
    EXPECT_EQ(why_unpublished(read_), "");
    EXPECT_EQ(warnings_, std::vector<std::string>{});
    Json both = file(type), keys = file(type);
    keys.update(Json::parse(fmt::format("{{{}}}", of_pictures)));
    const std::string whole = text.has_experts() ? "qwen3_5_moe" : "qwen3_5";
    both = {{"model_type", whole},
            {"text_config", keys},
            {"vision_config", Json::object()},
            {"tie_word_embeddings", true}};
    EXPECT_EQ(message(whole, both.dump()), "");
    EXPECT_TRUE(read_.tie_word_embeddings);
    read_.tie_word_embeddings = false;
    EXPECT_EQ(read_, text);
    EXPECT_EQ(message(whole, R"({"text_config": 3})"),
              fmt::format("{}: 'text_config' is 3, an object is expected", (folder_ / "config.json")));
  }
  EXPECT_TRUE(is_passed_over("model.visual.blocks.0.attn.qkv.weight", [](std::string_view) { return false; }));
  expect_read("minimax_m2", R"({"rope_scaling": {"rope_type": "linear", "factor": 2, "partial_rotary_factor": 0.25},
    "rope_parameters": {"partial_rotary_factor": 1.0}})");
  EXPECT_EQ(read_.partial_rotary_factor, 0.25);
  expect_read("mimo_v2_flash", R"({"v_head_dim": 16, "swa_v_head_dim": 16})");
  EXPECT_EQ(read_.value_width(), 16);
  EXPECT_EQ(model_config_to_json(read_)["v_head_dim"], 16);
  EXPECT_EQ(why_unpublished(read_), "");
  read_.value_head_dim = 16;
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
  expect_read("hunyuan_v1_moe", R"({"rope_scaling": {"type": "dynamic", "alpha": 128.0},
    "rope_parameters": {"rope_type": "dynamic", "alpha": 128.0, "rope_theta": 5.0}})");
  EXPECT_NEAR(read_.rope_theta, 1e4 * 256, 1e-3);  // 128^(16 ÷ 14) is 2^8
  expect_read("dots1", R"({"scoring_func": "noaux_tc"})");
  expect_read("ernie4_5_moe", R"({"moe_norm_min": 1e-12, "num_nextn_predict_layers": 1})");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  expect_read("hy_v3", R"({"num_nextn_predict_layers": 1, "first_k_dense_replace": 1})");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  expect_read("granitemoe", R"({"quantization_config": {"quant_method": "fp8"}})");
  const HasTensor none = [](std::string_view) { return false; };
  EXPECT_TRUE(is_passed_over("model.mtp_block.0.mlp.up_proj.weight", none));
  EXPECT_TRUE(is_passed_over("mtp.layers.0.mlp.gate.weight", none));
  // Step-3.5's layers of further tokens, which have heads of their own.
  const HasTensor head = [](std::string_view name) {
    return name == "model.layers.45.transformer.shared_head.output.weight";
  };
  EXPECT_TRUE(is_passed_over("model.layers.45.self_attn.q_proj.weight", head));
  EXPECT_FALSE(is_passed_over("model.layers.44.self_attn.q_proj.weight", head));
  EXPECT_FALSE(is_passed_over("model.layers.45.self_attn.q_proj.weight", none));
}

}  // namespace
}  // namespace heddle::config
