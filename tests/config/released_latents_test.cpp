// Released config.json files of families with latent attention, and of those whose queries follow their position:
// they are read as their presets. And what these families refuse.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

using Json = nlohmann::json;

// As Transformers 5.24 writes its defaults.
Json youtu() {
  return Json::parse(R"({"architectures": ["YoutuForCausalLM"], "model_type": "youtu", "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
    "embedding_initializer_range": 0.0395, "hidden_size": 2048, "initializer_range": null,
    "intermediate_size": 6144, "kv_lora_rank": 512, "max_position_embeddings": 131072, "num_attention_heads": 16,
    "num_hidden_layers": 32, "num_key_value_heads": 16, "q_lora_rank": 1536, "qk_head_dim": 192,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_interleave": true,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "tie_word_embeddings": true,
    "use_cache": true, "v_head_dim": 128, "vocab_size": 128256})");
}

// In the words of the first release.
Json sarvam() {
  return Json::parse(R"({"architectures": ["SarvamMLAForCausalLM"], "model_type": "sarvam_mla",
    "attention_bias": false, "attention_dropout": 0.0, "first_k_dense_replace": 1, "head_dim": 576,
    "q_head_dim": 192, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.006,
    "intermediate_size": 16384, "kv_lora_rank": 512, "max_position_embeddings": 131072,
    "moe_intermediate_size": 2048, "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 32, "num_shared_experts": 1, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
      "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "deepseek_yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 2.5, "tie_word_embeddings": false, "use_cache": true,
    "v_head_dim": 128, "vocab_size": 262144})");
}

Json axk1() {
  return Json::parse(R"({"architectures": ["AXK1ForCausalLM"], "model_type": "axk1", "attention_bias": false,
    "attention_dropout": 0.0, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 7168,
    "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 32768,
    "moe_intermediate_size": 2048, "n_group": 8, "n_routed_experts": 192, "n_shared_experts": 1,
    "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 64, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "routed_scaling_factor": 2.5, "tie_word_embeddings": false,
    "topk_group": 4, "topk_method": "none", "use_cache": true, "v_head_dim": 128, "vocab_size": 163840})");
}

Json axk2() {
  Json file = Json::parse(R"({"architectures": ["AXK2ForCausalLM"], "model_type": "axk2", "attention_bias": false,
    "attention_dropout": 0.0, "gated_norm_rank": 16, "head_dim": 32, "hidden_act": "silu", "hidden_size": 2048,
    "index_head_dim": 128, "index_n_heads": 16, "index_topk": 2048, "initializer_range": 0.02,
    "intermediate_size": 5120, "kv_lora_rank": 128, "max_position_embeddings": 131072,
    "moe_intermediate_size": 512, "n_group": null, "n_routed_experts": 128, "n_shared_experts": 1,
    "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_key_value_heads": 32, "q_lora_rank": 384, "qk_head_dim": 96, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "routed_scaling_factor": 2.5,
    "tie_word_embeddings": false, "topk_group": null, "v_head_dim": 64, "vocab_size": 163840})");
  for (int l = 0; l < 48; ++l) {
    file["layer_types"].push_back("indexed_attention");
    file["mlp_layer_types"].push_back(l == 0 ? "dense" : "sparse");
  }
  return file;
}

// A text model in a folder with one of pictures.
Json beside_pictures(const char* architecture, const char* model_type, const Json& text) {
  return Json{{"architectures", {architecture}},
              {"model_type", model_type},
              {"tie_word_embeddings", false},
              {"vision_config", {{"model_type", "pixtral"}, {"hidden_size", 1024}}},
              {"text_config", text}};
}

Json mistral4() {
  return Json::parse(R"({"model_type": "mistral4", "attention_bias": false, "attention_dropout": 0.0,
    "first_k_dense_replace": 0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 12288, "kv_lora_rank": 256,
    "max_position_embeddings": 1048576, "moe_intermediate_size": 2048, "n_group": 1, "n_routed_experts": 128,
    "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 4,
    "num_hidden_layers": 36, "num_key_value_heads": 32, "q_lora_rank": 1024, "qk_head_dim": 128,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_interleave": true,
    "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 128.0, "llama_4_scaling_beta": 0.1,
      "max_position_embeddings": 1048576, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 8192, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
      "rope_type": "yarn", "type": "yarn"}, "routed_scaling_factor": 1.0, "tie_word_embeddings": false,
    "topk_group": 1, "v_head_dim": 128, "vocab_size": 131072})");
}

Json ministral3() {
  return Json::parse(R"({"model_type": "ministral3", "attention_dropout": 0.0, "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 262144, "num_attention_heads": 32, "num_hidden_layers": 34,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0,
      "factor": 16.0, "llama_4_scaling_beta": 0.1, "max_position_embeddings": 262144, "mscale": 1.0,
      "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384, "rope_theta": 1000000.0,
      "rope_type": "yarn", "type": "yarn"}, "sliding_window": null, "tie_word_embeddings": false,
    "vocab_size": 131072})");
}

// The text model's keys at the root, with older names of the sizes in windows.
Json dots3() {
  return Json::parse(R"({"architectures": ["Dots3NoteForCausalLM"], "model_type": "dots3_note",
    "attention_bias": false, "attention_dropout": 0.0, "first_k_dense_replace": 1, "hidden_act": "silu",
    "hidden_size": 5120, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048,
    "initializer_range": 0.02, "intermediate_size": 13824, "kv_lora_rank": 512, "max_position_embeddings": 524288,
    "moe_intermediate_size": 1536, "moe_layer_freq": 1, "moe_shared_expert_intermediate_size": 1536, "n_group": 1,
    "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 128, "q_lora_rank": 1024,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_theta": 80000000.0,
    "routed_scaling_factor": 1.0, "sliding_window_size": 512, "swa_head_dim": 256, "swa_kv_lora_rank": 1024,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 64, "swa_q_lora_rank": 1024,
    "swa_qk_nope_head_dim": 192, "swa_rope_theta": 50000.0, "swa_v_head_dim": 128, "tie_word_embeddings": false,
    "topk_group": 1, "use_dsa": true, "use_sliding_window": true, "v_head_dim": 128, "vision_config": {},
    "audio_config": {}, "vocab_size": 152064})");
}

class ReleasedLatents : public ReleasedConfig {
 protected:
  void refused(const Json& file, const std::string& change, const std::string& part) {
    EXPECT_NE(message(file, change).find(part), std::string::npos) << message(file, change);
  }
};

constexpr const char* kMistral3 = "Mistral3ForConditionalGeneration";

TEST_F(ReleasedLatents, AreTheirPresets) {
  const std::pair<const char*, Json> cases[] = {
      {"youtu-llm-2b", youtu()},
      {"sarvam-105b", sarvam()},
      {"a.x-k2-light", axk2()},
      {"mistral-small-4", beside_pictures(kMistral3, "mistral3", mistral4())},
      {"ministral-3-8b", beside_pictures(kMistral3, "mistral3", ministral3())},
      {"dots3-note", dots3()}};
  for (const auto& [name, file] : cases) {
    expect_read(file);
    EXPECT_EQ(read_, preset(name)) << name;
  }
  expect_read(axk1());
  read_.topk_bias = false;  // the weights say it
  EXPECT_EQ(read_, preset("a.x-k1"));
}

TEST_F(ReleasedLatents, BesidePicturesAreTextModels) {
  for (const char* architecture : {"KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"}) {
    Json text = axk1();
    for (const char* name : {"architectures", "topk_method"}) text.erase(name);
    text["model_type"] = "kimi_k2";
    expect_read(beside_pictures(architecture, "kimi_k25", text));
    EXPECT_EQ(model_config_to_json(read_)["model_type"], "deepseek_v3");
  }
  Json text = ministral3();
  text["model_type"] = "mistral";
  text["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e9}};
  expect_read(beside_pictures(kMistral3, "mistral3", text));
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "llama");
  EXPECT_EQ(read_.rope_theta, 1e9);
  expect_read(beside_pictures(kMistral3, "mistral3", mistral4()));
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "mistral4");
}

TEST_F(ReleasedLatents, OfTwoKindsOfLayersAreRead) {
  expect_read(dots3(), R"({"num_hidden_layers": 7})");
  EXPECT_EQ(read_.layer_pattern, "**WWW*W");
  EXPECT_TRUE(read_.has_indexer(1) && read_.has_indexer(5));
  EXPECT_FALSE(read_.has_indexer(2) || read_.selects_in(2));
  EXPECT_EQ(read_.latent_widths(2).kv_rank, 1024);
  EXPECT_EQ(read_.latent_widths(5).kv_rank, 512);
  EXPECT_EQ(read_.heads_of(3), 64);
  expect_read(dots3(), R"({"num_hidden_layers": 2, "use_dsa": false})");
  EXPECT_FALSE(read_.selects());
  EXPECT_EQ(read_.sliding_window, 0);
  refused(dots3(), R"({"num_hidden_layers": 2, "layer_types": ["sliding_attention"]})", "a word for each layer");
  refused(dots3(), R"({"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]})",
          "accepted are");
  refused(dots3(), R"({"per_layer_config": {"2": {"hidden_size": 3}}, "num_hidden_layers": 3})",
          "'per_layer_config.2.hidden_size'");
  refused(dots3(), R"({"per_layer_config": {"1": {"v_head_dim": 3}}, "num_hidden_layers": 3,
                       "layer_types": ["indexed_attention", "indexed_attention", "sliding_attention"]})",
          "only layers with a window");
  refused(dots3(), R"({"rope_scaling": {"type": "yarn", "factor": 4}})", "only 'default' is built");
  refused(dots3(), R"({"moe_layer_freq": 2})", "'moe_layer_freq'");
}

TEST_F(ReleasedLatents, OfOtherWordsAreRefused) {
  refused(sarvam(), R"({"head_dim": 100})", "'head_dim' is 100");
  refused(axk2(), R"({"n_group": 4})", "both null");
  refused(axk1(), R"({"mlp_layer_types": ["dense"], "num_hidden_layers": 2})", "'mlp_layer_types'");
  Json file = mistral4();
  file["architectures"] = {"Mistral4ForCausalLM"};
  expect_read(file);
  file["rope_parameters"]["partial_rotary_factor"] = 0.25;
  refused(file, "{}", "'rope_parameters.partial_rotary_factor' is 0.25");
  file["rope_parameters"].erase("partial_rotary_factor");
  file["rope_parameters"].erase("llama_4_scaling_beta");
  refused(file, "{}", "'llama_4_scaling_beta' is missing");
  refused(beside_pictures("Kimi_K25ForConditionalGeneration", "kimi_k25", mistral4()), "{}",
          "'text_config.model_type'");
}

}  // namespace
}  // namespace heddle::config
