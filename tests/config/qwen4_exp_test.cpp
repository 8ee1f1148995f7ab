// Qwen4-Exp: its keys, as Transformers writes them and as released files have them.
#include <gtest/gtest.h>

#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

using model::ModelConfig;

Json keys_of_qwen4() {
  return Json::parse(R"({
    "architectures": ["Qwen4ExpForCausalLM"], "model_type": "qwen4_exp_text",
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "layer_types": ["linear_attention", "indexed_attention", "linear_attention", "full_attention"],
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
    "hc_count": 2, "hc_lowrank": 6, "output_gate_type": "sigmoid", "norm_topk_prob": true,
    "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 8,
    "indexer_compress_ratio": 4, "ple_layer_ids": [3, 1], "heads_per_ngram": 2, "ngram_vocab_size_base": 20,
    "split_ngram_parts": 3, "eos_token_id": [5, 6]})");
}

class Qwen4 : public ReleasedConfig {
 protected:
  std::string refusal(const Json& change) {
    Json json = keys_of_qwen4();
    json.merge_patch(change);
    return message(json);
  }
};

TEST_F(Qwen4, IsRead) {
  EXPECT_EQ(refusal(Json::object()), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_TRUE(read_.has_gated_streams());
  EXPECT_EQ(read_.hyper_connections_rank, 6);
  EXPECT_TRUE(read_.linear_sigmoid_gate);
  EXPECT_EQ(read_.ngram_layers, "1,3");
  EXPECT_EQ(read_.ngram_width(), 32);
  EXPECT_EQ(read_.ngram_end_token, 5);
  EXPECT_EQ(read_.ngram_parts, 3);
  EXPECT_EQ(read_.index_blocks, model::IndexBlocks::mean);
  EXPECT_EQ(read_.index_topk, 8);
  EXPECT_EQ(read_.full_attention_interval, 2);
  const nlohmann::ordered_json written = model_config_to_json(read_);
  EXPECT_EQ(written["model_type"], "qwen4_exp_text");
  EXPECT_EQ(written["layer_types"][1], "indexed_attention");
  EXPECT_EQ(written["ple_layer_ids"], nlohmann::ordered_json({1, 3}));
  EXPECT_EQ(model_config_from_json(written, "x"), read_);
  EXPECT_EQ(why_unpublished(read_), "");
}

TEST_F(Qwen4, MayHaveNeitherNgramsNorAnIndexer) {
  const std::string all = R"("linear_attention", "linear_attention", "linear_attention", "linear_attention")";
  EXPECT_EQ(refusal(Json::parse(R"({"layer_types": [)" + all + R"(], "ple_layer_ids": null,
    "indexer_n_heads": null, "indexer_kv_heads": null, "indexer_head_dim": null, "indexer_budget": null,
    "indexer_compress_ratio": null, "output_gate_type": null, "eos_token_id": null})")),
            "");
  EXPECT_FALSE(read_.has_ngrams() || read_.selects() || read_.linear_sigmoid_gate);
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
  EXPECT_EQ(why_unpublished(read_), "");
}

// No family has n-grams beside attention without an indexer: an object says all of their keys.
TEST_F(Qwen4, OtherModelsKeepKeysOfNgrams) {
  EXPECT_EQ(refusal(Json::object()), "");
  ModelConfig other = read_;
  const ModelConfig usual;
  other.index_topk = usual.index_topk, other.index_n_heads = usual.index_n_heads;
  other.index_head_dim = usual.index_head_dim, other.index_block_size = usual.index_block_size;
  other.index_blocks = usual.index_blocks, other.index_stage = usual.index_stage;
  model::validate(other);
  const nlohmann::ordered_json written = model_config_to_json(other);
  EXPECT_NE(written["model_type"], "qwen4_exp_text");
  EXPECT_EQ(model_config_from_json(written, "x"), other);
}

TEST_F(Qwen4, StandsBesidePictures) {
  Json text = keys_of_qwen4();
  EXPECT_EQ(refusal(Json::object()), "");
  const ModelConfig alone = read_;
  Json whole{{"architectures", {"Qwen4ExpForConditionalGeneration"}}, {"model_type", "qwen4_exp"}};
  whole["text_config"] = text;
  whole["vision_config"] = Json::object();
  EXPECT_EQ(model_config_from_json(whole, "x"), alone);
}

TEST_F(Qwen4, RefusesWhatItComputesOtherwise) {
  for (const auto& [change, part] : std::vector<std::pair<const char*, const char*>>{
           {R"({"layer_types": ["linear_attention"]})", "each of 4 layers is 'linear_attention' or"},
           {R"({"indexer_budget": null})", "'indexer_budget' is missing"},
           {R"({"indexer_budget": 9})", "a multiple of 'indexer_compress_ratio' (4)"},
           {R"({"indexer_kv_heads": 2})", "'indexer_kv_heads' is 2"},
           {R"({"output_gate_type": "tanh"})", "accepted: silu, sigmoid"},
           {R"({"ple_layer_ids": [5]})", "layers from 1 to 4"},
           {R"({"ple_layer_ids": 1})", "layers from 1 to 4"},
           {R"({"eos_token_id": null})", "'eos_token_id' is missing"},
           {R"({"eos_token_id": 64})", "model.ngram_end_token is 64"},
           {R"({"hc_count": 1})", "model.hyper_connections of 2 or more"},
           {R"({"ple_embed_dim": 30})", "model.ngram_embedding_size is 30"},
           {R"({"hidden_act": "gelu"})", "'hidden_act' is"}}) {
    EXPECT_NE(refusal(Json::parse(change)).find(part), std::string::npos)
        << change << ": " << refusal(Json::parse(change));
  }
}

}  // namespace
}  // namespace heddle::config
