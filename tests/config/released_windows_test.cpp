// Released config.json files of families whose layers with a window differ from the others in positions, heads and
// gates: read as their presets, without a line of warning; and what these families refuse.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "heddle/model/shapes/shape_presets.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

using Json = nlohmann::json;

// Words of so many layers, in turn.
Json in_turn(int64_t layers, const std::vector<std::string>& words) {
  Json list = Json::array();
  for (int64_t l = 0; l < layers; ++l) list.push_back(words[static_cast<size_t>(l) % words.size()]);
  return list;
}

const std::string kFullWord = "full_attention", kWindowWord = "sliding_attention";

Json released_trinity() {
  Json file = Json::parse(R"({"architectures": ["AfmoeForCausalLM"], "attention_dropout": 0.0, "dtype": "bfloat16",
    "global_attn_every_n_layers": 4, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "initializer_range": 0.02, "intermediate_size": 3072, "load_balance_coeff": 0.001,
    "max_position_embeddings": 131072, "model_type": "afmoe", "moe_intermediate_size": 256, "mup_enabled": true,
    "n_group": 1, "num_attention_heads": 8, "num_dense_layers": 2, "num_expert_groups": 1, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 56, "num_key_value_heads": 2, "num_limited_groups": 1,
    "num_shared_experts": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000, "route_norm": true,
    "route_scale": 2.826, "score_func": "sigmoid", "sliding_window": 2048, "tie_word_embeddings": false,
    "topk_group": 1, "use_cache": true, "use_grouped_mm": true, "vocab_size": 200192})");
  file["layer_types"] = in_turn(56, {kWindowWord, kWindowWord, kWindowWord, kFullWord});
  return file;
}

Json released_exaone() {
  Json file =
      Json::parse(R"({"architectures": ["ExaoneMoEForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
    "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144,
    "initializer_range": 0.02, "intermediate_size": 18432, "max_position_embeddings": 262144,
    "model_type": "exaone_moe", "moe_intermediate_size": 2048, "n_group": 1, "norm_topk_prob": true,
    "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 8, "num_shared_experts": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 1000000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "sliding_window": 128,
    "sliding_window_pattern": "LLLG", "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc",
    "vocab_size": 153600})");
  file["layer_types"] = in_turn(48, {kWindowWord, kWindowWord, kWindowWord, kFullWord});
  return file;
}

Json released_laguna() {
  Json file = Json::parse(R"({"architectures": ["LagunaForCausalLM"], "model_type": "laguna", "vocab_size": 100352,
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 40, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "attention_bias": false,
    "attention_dropout": 0.0, "rms_norm_eps": 1e-06, "num_experts": 256, "num_experts_per_tok": 8,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "router_aux_loss_coef": 0.0,
    "tie_word_embeddings": false, "gating": true, "sliding_window": 512, "moe_routed_scaling_factor": 2.5,
    "rope_parameters": {"full_attention": {"rope_theta": 500000.0, "rope_type": "yarn", "factor": 32.0,
      "original_max_position_embeddings": 4096, "beta_slow": 1.0, "beta_fast": 64.0, "attention_factor": 1.0,
      "partial_rotary_factor": 0.5},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
      "original_max_position_embeddings": 4096}})");
  file["layer_types"] = in_turn(40, {kFullWord, kWindowWord, kWindowWord, kWindowWord});
  file["num_attention_heads_per_layer"] = Json::array();
  for (int64_t l = 0; l < 40; ++l) file["num_attention_heads_per_layer"].push_back(l % 4 == 0 ? 48 : 64);
  return file;
}

Json released_mellum() {
  Json file = Json::parse(R"({"architectures": ["MellumForCausalLM"], "attention_bias": false, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 7168,
    "max_position_embeddings": 131072, "max_window_layers": 0, "model_type": "mellum",
    "moe_intermediate_size": 896, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 64,
    "num_experts_per_tok": 8, "num_hidden_layers": 28, "num_key_value_heads": 4, "output_router_logits": false,
    "rms_norm_eps": 1e-06, "router_aux_loss_coef": 0.001, "sliding_window": 1024, "tie_word_embeddings": false,
    "use_sliding_window": true, "vocab_size": 98304,
    "rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 16.0,
      "original_max_position_embeddings": 8192, "beta_fast": 32.0, "beta_slow": 1.0,
      "attention_factor": 1.2772588722239782},
      "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}}})");
  file["layer_types"] = in_turn(28, {kWindowWord, kWindowWord, kWindowWord, kFullWord});
  file["mlp_layer_types"] = in_turn(28, {"sparse"});
  return file;
}

Json released_kolibri() {
  Json file =
      Json::parse(R"({"architectures": ["Kolibri1ForCausalLM"], "model_type": "kolibri1", "hidden_size": 2560,
    "num_hidden_layers": 50, "num_attention_heads": 48, "num_key_value_heads": 4, "head_dim": 128,
    "hidden_act": "silu", "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "vocab_size": 128000,
    "rope_theta": 10000.0, "num_experts": 384, "num_experts_per_tok": 6, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512, "norm_topk_prob": false, "attention_bias": false,
    "attention_dropout": 0.0, "tie_word_embeddings": false, "use_sliding_window": true, "sliding_window": 513,
    "head_dtype": "float32", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})");
  file["layer_types"] = in_turn(50, {kWindowWord, kWindowWord, kWindowWord, kWindowWord, kFullWord});
  return file;
}

Json released_sarvam() {
  return Json::parse(R"({"architectures": ["SarvamMoEForCausalLM"], "attention_dropout": 0.0,
    "attn_implementation": null, "embedding_dropout": 0.0, "first_k_dense_replace": 1, "head_dim": 64,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.006, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "max_window_layers": 19, "model_type": "sarvam_moe",
    "moe_intermediate_size": 1024, "moe_router_enable_expert_bias": true,
    "moe_shared_expert_intermediate_size": 1024, "n_group": 1, "norm_topk_prob": true, "num_attention_heads": 64,
    "num_experts": 128, "num_experts_per_tok": 6, "num_hidden_layers": 19, "num_key_value_heads": 4,
    "num_shared_experts": 1, "output_dropout": 0.0, "output_router_logits": false, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 8000000, "routed_scaling_factor": 2.5, "router_dtype": "fp32",
    "score_function": "sigmoid", "tie_word_embeddings": false, "topk_group": 1, "use_bias": false,
    "use_qk_norm": true, "use_qkv_bias": false, "use_rmsnorm": true, "vocab_size": 262144})");
}

Json released_glm4() {
  return Json::parse(R"({"architectures": ["Glm4ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144, "initializer_range": 0.02,
    "intermediate_size": 23040, "max_position_embeddings": 32768, "model_type": "glm4", "num_attention_heads": 48,
    "num_hidden_layers": 61, "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 151552})");
}

class ReleasedWindows : public ReleasedConfig {};

TEST_F(ReleasedWindows, AreTheirPresets) {
  const std::pair<const char*, Json> cases[] = {
      {"trinity-nano", released_trinity()}, {"k-exaone-236b-a23b", released_exaone()},
      {"laguna-xs.2", released_laguna()},   {"mellum2-12b-a2.5b", released_mellum()},
      {"kolibri-1", released_kolibri()},    {"sarvam-30b", released_sarvam()},
      {"glm-4-32b-0414", released_glm4()},
  };
  for (const auto& [name, file] : cases) {
    EXPECT_EQ(message(file), "") << name;
    EXPECT_EQ(read_, preset(name)) << name;
    EXPECT_EQ(warnings_, std::vector<std::string>{}) << name;
    EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_) << name;
  }
}

TEST_F(ReleasedWindows, LayersDiffer) {
  EXPECT_EQ(message(released_laguna()), "");
  EXPECT_EQ(read_.heads_of(0), 48);
  EXPECT_EQ(read_.heads_of(1), 64);
  EXPECT_EQ(read_.window_of(4), 0);
  EXPECT_EQ(read_.rotary_width(), 64);
  EXPECT_EQ(read_.with_rotation_of_windows().rotary_width(), 128);
  EXPECT_EQ(message(released_laguna(), R"({"gating": "per-element"})"), "");
  EXPECT_EQ(read_.attention_gate, model::AttentionGate::element_apart);
  EXPECT_EQ(message(released_trinity()), "");
  EXPECT_TRUE(read_.turns_in(0));
  EXPECT_FALSE(read_.turns_in(3));
  Json file = released_exaone();
  file["sliding_window"] = nullptr;
  file["layer_types"] = in_turn(48, {kFullWord});
  EXPECT_EQ(message(file), "");
  EXPECT_TRUE(read_.turns_in(3));
}

TEST_F(ReleasedWindows, RefuseOthers) {
  const struct {
    Json file;
    const char *change, *part;
  } cases[] = {
      {released_exaone(), R"({"sliding_window_pattern": "LGLG"})", "letters L with one G"},
      {released_exaone(), R"({"scoring_func": "softmax"})", "scores are sigmoids"},
      {released_exaone(), R"({"is_moe_layer": [true]})", "something else than 'mlp_layer_types'"},
      {released_trinity(), R"({"route_norm": false})", "gates sum to one"},
      {released_trinity(), R"({"num_expert_groups": 2})", "within groups"},
      {released_trinity(), R"({"sliding_window": null})", "a number of tokens above 0"},
      {released_laguna(), R"({"gating": "per-layer"})", "accepted: true, \"per-head\""},
      {released_laguna(), R"({"num_attention_heads_per_layer": [48, 64]})", "a number for each of 40 layers"},
      {released_laguna(), R"({"moe_apply_router_weight_on_input": true})", "factors of what experts make"},
      {released_laguna(), R"({"gating_types": ["per-head", "per-element"]})", "the gate of 'gating'"},
      {released_laguna(), R"({"mlp_only_layers": [1]})", "something else than 'mlp_layer_types'"},
      {released_laguna(), R"({"rope_parameters": null, "rope_theta": 10000})", "outside of 'rope_parameters'"},
      {released_laguna(), R"({"full_rotary_factor": 1})", "no key of this family"},
      {released_mellum(), R"({"mlp_only_layers": [0]})", "which layers are dense"},
      {released_mellum(), R"({"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}})",
       "turn a part 0.5"},
      {released_kolibri(), R"({"intermediate_size": 1024})", "every layer has experts"},
      {released_sarvam(), R"({"use_bias": true})", "attention's output"},
      {released_glm4(), R"({"hidden_act": "gelu"})", "'silu'"},
  };
  for (const auto& [file, change, part] : cases) {
    const std::string found = message(file, change);
    EXPECT_NE(found.find(part), std::string::npos) << change << ": " << found;
  }
  Json file = released_trinity();
  file["layer_types"][0] = kFullWord;
  EXPECT_NE(message(file).find("in other layers than every n-th"), std::string::npos);
  file = released_mellum();
  file["num_nextn_predict_layers"] = 1;
  EXPECT_EQ(message(file), "");
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_NE(warnings_[0].find("predict further tokens"), std::string::npos);
}

}  // namespace
}  // namespace heddle::config
