// Released config.json files of families whose layers differ in kind: chunks, experts in every second layer, blocks
// side by side, Granite's windows. They are read as their presets; and what these families refuse.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

using Json = nlohmann::json;

// Llama 4 as it was released: the text model in a folder with one of pictures.
Json released_llama4(bool scout) {
  Json text = Json::parse(R"({"_attn_implementation_autoset": true, "attention_bias": false,
    "attention_chunk_size": 8192, "attention_dropout": 0.0, "attn_scale": 0.1, "attn_temperature_tuning": 4,
    "bos_token_id": 200000, "cache_implementation": "hybrid", "eos_token_id": [200001, 200007, 200008],
    "floor_scale": 8192, "for_llm_compressor": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
    "initializer_range": 0.02, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "interleave_moe_layer_step": 1, "max_position_embeddings": 10485760, "model_type": "llama4_text",
    "no_rope_layers": [], "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48,
    "num_key_value_heads": 8, "num_local_experts": 16, "output_router_logits": false, "pad_token_id": 200018,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0,
      "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "torch_dtype": "bfloat16", "use_cache": true,
    "use_qk_norm": true, "vocab_size": 202048})");
  if (!scout) {
    text["max_position_embeddings"] = 1048576;
    text["rope_scaling"] = nullptr;
    text["use_qk_norm"] = false;
    text["num_local_experts"] = 128;
    text["interleave_moe_layer_step"] = 2;
    text["moe_layers"] = Json::array();
    for (int l = 1; l < 48; l += 2) text["moe_layers"].push_back(l);
  }
  return Json{{"architectures", {"Llama4ForConditionalGeneration"}},
              {"model_type", "llama4"},
              {"tie_word_embeddings", false},
              {"vision_config", {{"model_type", "llama4_vision_model"}, {"hidden_size", 1408}}},
              {"text_config", text}};
}

Json released_command(bool a) {
  Json file = Json::parse(R"({"architectures": ["Cohere2ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 5, "cache_implementation": "hybrid", "eos_token_id": 255001,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "layer_norm_eps": 1e-05, "layer_switch": 4, "logit_scale": 0.25,
    "max_position_embeddings": 132096, "model_type": "cohere2", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "order_of_interleaved_layers": "local_attn_first",
    "pad_token_id": 0, "position_embedding_type": "rope_gptj", "rope_scaling": null, "rope_theta": 50000,
    "rotary_pct": 1.0, "sliding_window": 4096, "sliding_window_pattern": 4, "torch_dtype": "bfloat16",
    "use_cache": true, "use_embedding_sharing": true, "use_gated_activation": true, "use_parallel_block": true,
    "use_parallel_embedding": true, "vocab_size": 256000})");
  if (a)
    file.update(Json::parse(R"({"hidden_size": 12288, "intermediate_size": 36864, "num_attention_heads": 96,
      "num_hidden_layers": 64, "max_position_embeddings": 131072})"));
  return file;
}

// Command A+ by its defaults in Transformers, in fewer layers.
Json small_command_a_plus() {
  return Json::parse(R"({"architectures": ["Cohere2MoeForCausalLM"], "model_type": "cohere2_moe",
    "vocab_size": 48, "hidden_size": 32, "intermediate_size": 12, "prefix_dense_intermediate_size": 24,
    "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "hidden_act": "silu", "max_position_embeddings": 64, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
    "rms_norm_eps": null, "logit_scale": 0.25, "rope_theta": 10000.0, "rope_scaling": null,
    "attention_bias": false, "attention_dropout": 0.0, "sliding_window": 5, "num_experts_per_tok": 2,
    "num_experts": 8, "num_shared_experts": 1, "shared_expert_combination_strategy": "average",
    "expert_selection_fn": "sigmoid", "norm_topk_prob": true, "first_k_dense_replace": 1,
    "prefix_dense_sliding_window_pattern": 1, "sliding_window_pattern": 4, "output_router_logits": false})");
}

Json small_granite(const char* architecture, const char* model_type) {
  Json file = Json::parse(R"({"vocab_size": 48, "hidden_size": 32, "intermediate_size": 24,
    "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "attention_multiplier": 0.125, "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22, "logits_scaling": 8.0, "tie_word_embeddings": true, "sliding_window": 5})");
  file["architectures"] = {architecture};
  file["model_type"] = model_type;
  return file;
}

class ReleasedLayers : public ReleasedConfig {
 protected:
  std::string turned() const {
    std::string letters;
    for (int64_t l = 0; l < read_.num_hidden_layers; ++l) letters += read_.turns_in(l) ? 'R' : '-';
    return letters;
  }
  std::string windows() const {
    std::string letters;
    for (int64_t l = 0; l < read_.num_hidden_layers; ++l) letters += read_.has_window(l) ? 'W' : '*';
    return letters;
  }
  std::string experts() const {
    std::string letters;
    for (int64_t l = 0; l < read_.num_hidden_layers; ++l) letters += read_.is_moe(l) ? 'E' : '-';
    return letters;
  }
};

TEST_F(ReleasedLayers, AreTheirPresets) {
  const std::pair<const char*, Json> cases[] = {{"llama-4-scout", released_llama4(true)},
                                                {"llama-4-maverick", released_llama4(false)},
                                                {"command-r7b", released_command(false)},
                                                {"command-a", released_command(true)}};
  for (const auto& [name, file] : cases) {
    expect_read(file);
    EXPECT_EQ(read_, preset(name)) << name;
  }
}

TEST_F(ReleasedLayers, OfLlama4Differ) {
  expect_read(released_llama4(false));
  EXPECT_EQ(experts().substr(0, 4), "-E-E");
  EXPECT_EQ(turned().substr(0, 8), "RRR-RRR-");
  EXPECT_EQ(windows().substr(0, 8), "WWW*WWW*");
  EXPECT_TRUE(read_.window_chunks && read_.gates_on_inputs);
  EXPECT_FALSE(read_.qk_unit_norm);
  EXPECT_TRUE(read_.scales_queries(3));
  EXPECT_FALSE(read_.scales_queries(2));
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "llama4_text");
  Json file = released_llama4(true);
  file["text_config"].update(Json::parse(R"({"num_hidden_layers": 4, "no_rope_layers": [1, 0, 0, 1],
    "moe_layers": [0, 3], "attn_temperature_tuning": false, "attention_chunk_size": null})"));
  expect_read(file);
  EXPECT_EQ(experts(), "E--E");
  EXPECT_EQ(turned(), "R--R");
  EXPECT_EQ(windows(), "****");
  EXPECT_EQ(read_.query_scale_beta, 0);
}

TEST_F(ReleasedLayers, OfCommandDiffer) {
  expect_read(released_command(false), R"({"num_hidden_layers": 5})");
  EXPECT_EQ(windows(), "WWW*W");
  EXPECT_EQ(turned(), "RRR-R");
  EXPECT_TRUE(read_.parallel_blocks && read_.rope_interleave && read_.tie_word_embeddings);
  EXPECT_EQ(read_.logits_divisor, 4);
  expect_read(released_command(false), R"({"sliding_window_pattern": 1})");
  EXPECT_FALSE(read_.turns());
  expect_read(small_command_a_plus());
  EXPECT_EQ(experts(), "-EEEEE");
  EXPECT_EQ(windows(), "*WWW*W");
  EXPECT_EQ(turned(), "RRRR-R");
  EXPECT_TRUE(read_.shared_expert_average && read_.sigmoid_scores && read_.norm_topk_prob);
  EXPECT_EQ(read_.intermediate_size, 24);
  EXPECT_EQ(read_.moe_intermediate_size, 12);
  expect_read(small_command_a_plus(), R"({"prefix_dense_sliding_window_pattern": 2, "first_k_dense_replace": 2,
    "expert_selection_fn": "softmax", "rms_norm_eps": 1e-6, "shared_expert_combination_strategy": "sum"})");
  EXPECT_EQ(windows(), "W*WWW*");
  EXPECT_EQ(turned(), "R-RRR-");
  EXPECT_EQ(read_.norm, model::Norm::rms);
  EXPECT_EQ(read_.rms_norm_eps, 1e-6);
  expect_read(small_command_a_plus(), R"({"first_k_dense_replace": null,
    "mlp_layer_types": ["sparse", "dense", "sparse", "dense", "sparse", "sparse"],
    "layer_types": ["full_attention", "full_attention", "sliding_attention", "sliding_attention",
                    "full_attention", "sliding_attention"]})");
  EXPECT_EQ(experts(), "E-E-EE");
  EXPECT_EQ(turned(), "-RRR-R");
}

TEST_F(ReleasedLayers, OfGraniteDiffer) {
  const Json dense = small_granite("GraniteSWAForCausalLM", "granite_swa");
  expect_read(dense);
  EXPECT_EQ(windows(), "*WWW*");
  EXPECT_TRUE(read_.attention_sinks);
  expect_read(dense, R"({"layer_rope_theta": [0, 1e4, 1e4, 1e4, 0]})");
  EXPECT_EQ(turned(), "-RRR-");
  EXPECT_EQ(read_.rope_theta, 1e4);
  expect_read(dense, R"({"layer_rope_theta": [1e6, 1e4, 1e4, 0, 1e6]})");
  EXPECT_EQ(read_.rope_theta, 1e6);
  EXPECT_EQ(read_.window_rope_theta, 1e4);
  EXPECT_EQ(turned(), "RRR-R");
  expect_read(dense, R"({"layer_rope_theta": [0, 0, 0, 0, 0]})");
  EXPECT_FALSE(read_.turns());
  Json experts = small_granite("GraniteMoeSWAForCausalLM", "granitemoe_swa");
  experts["shared_intermediate_size"] = 20;
  expect_read(experts);
  EXPECT_EQ(read_.shared_width(), 20);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "granitemoe_swa");
  Json shared = small_granite("GraniteMoeSharedForCausalLM", "granitemoeshared");
  shared.erase("sliding_window");
  shared["shared_intermediate_size"] = 20;
  expect_read(shared);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "granitemoeshared");
  shared["shared_intermediate_size"] = 0;
  expect_read(shared);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "granitemoe");
}

TEST_F(ReleasedLayers, RefuseOthers) {
  const Json granite = small_granite("GraniteSWAForCausalLM", "granite_swa");
  const struct {
    Json file;
    const char *change, *part;
  } cases[] = {
      {released_command(false), R"({"sliding_window": null})", "a number of tokens"},
      {released_command(false), R"({"use_parallel_block": false})", "side by side"},
      {released_command(false), R"({"head_dim": 64})", "Transformers takes whatever"},
      {released_command(false), R"({"logit_scale": 0})", "above 0"},
      {small_command_a_plus(), R"({"expert_selection_fn": "tanh"})", "'softmax' or 'sigmoid'"},
      {small_command_a_plus(), R"({"mlp_layer_types": ["dense"]})", "the others are sparse"},
      {small_command_a_plus(), R"({"sliding_window_pattern": 0})", "both are 1 or more"},
      {granite, R"({"layer_rope_theta": [1e6, 1e4, 1e5, 1e4, 1e6]})", "more are not built"},
      {granite, R"({"layer_rope_theta": [1, 2]})", "each of 5 layers"},
      {granite,
       R"({"layer_rope_theta": [1e6, 1e4, 1e4, 1e4, 1e6], "rope_scaling": {"type": "linear", "factor": 2}})",
       "stretched positions of two"},
  };
  for (const auto& [file, change, part] : cases) {
    const std::string found = message(file, change);
    EXPECT_NE(found.find(part), std::string::npos) << change << ": " << found;
  }
  const std::pair<const char*, const char*> of_llama4[] = {
      {R"({"num_experts_per_tok": 2})", "model.num_experts_per_tok = 1"},
      {R"({"moe_layers": [48]})", "numbers of 48 layers"},
      {R"({"interleave_moe_layer_step": 0})", "at least 1"},
      {R"({"no_rope_layers": [1, 0]})", "each of 48 layers"},
      {R"({"layer_types": ["sliding_attention"]})", "accepted: 'chunked_attention'"},
      {R"({"attention_chunk_size": 0})", "above 0"},
      {R"({"router_jitter_noise": 0.1})", "noise in the router"}};
  for (const auto& [change, part] : of_llama4) {
    Json file = released_llama4(true);
    file["text_config"].update(Json::parse(change));
    const std::string found = message(file);
    EXPECT_NE(found.find(part), std::string::npos) << change << ": " << found;
  }
}

}  // namespace
}  // namespace heddle::config
