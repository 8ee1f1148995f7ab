// Configurations as Hugging Face's files have them: read, refused, and what beside them counts.
#include "heddle/config/model_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "heddle/base/error.h"
#include "heddle/config/run_config.h"
#include "tests/support/scratch_folder.h"

namespace heddle::config {
namespace {

class HuggingFace : public testing::Test {
 protected:
  std::string with(const std::string& text) {
    std::ofstream(folder_ / "config.json") << text;
    return folder_ / "config.json";
  }
  std::string refusal(const std::string& text) {
    try {
      read_huggingface_config(with(text));
    } catch (const ConfigError& error) {
      const std::string what = error.what();
      EXPECT_TRUE(what.starts_with(folder_ / "config.json")) << what;
      return what.substr((folder_ / "config.json").size());
    }
    return "accepted";
  }
  ScratchFolder folder_;
  const std::string sizes_ =
      R"("vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
    "first_k_dense_replace": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "num_attention_heads": 4,
    "num_key_value_heads": 4, "q_lora_rank": null, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_shared_experts": 1, "moe_intermediate_size": 12)";
};

TEST_F(HuggingFace, TheFixturesAreRead) {
  const std::string folder = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/";
  const RunConfig c = parse_run_config(
      "[model]\nhf = \"" + folder + "mtp/config.json\"\nvocab_size = 70\n[train]\nsequence_length = 16\n",
      "run.toml");
  EXPECT_EQ(c.model.hidden_size, 32);
  EXPECT_EQ(c.model.n_group, 4);
  EXPECT_EQ(c.model.vocab_size, 70);
  EXPECT_EQ(read_huggingface_config(folder + "yarn/config.json").rope_scaling->beta_slow, 0.05);
}

TEST_F(HuggingFace, V2InTheWordsOfV3) {
  const model::ModelConfig c = read_huggingface_config(with(
      R"({"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "topk_method": "greedy", "n_group": 1,
      "topk_group": 1, "aux_loss_alpha": 0.001, "seq_aux": true, )" +
      sizes_ + "}"));
  EXPECT_FALSE(c.sigmoid_scores);
  EXPECT_FALSE(c.topk_bias);
  EXPECT_FALSE(c.norm_topk_prob);
  EXPECT_EQ(c.sequence_aux_loss_alpha, 0.001);
}

TEST_F(HuggingFace, Refusals) {
  const std::string said = refusal(R"({"architectures": ["MambaForCausalLM"]})");
  EXPECT_TRUE(said.starts_with(": the architecture is 'MambaForCausalLM', accepted: 'DeepseekV4ForCausalLM', "))
      << said;
  EXPECT_TRUE(said.find("'Qwen3MoeForCausalLM'") != said.npos) << said;
  EXPECT_EQ(refusal(R"({"architectures": ["DeepseekV2ForCausalLM"], "topk_method": "noaux_tc", )" + sizes_ + "}"),
            ": 'topk_method' is \"noaux_tc\": the V2 family has 'greedy' and 'group_limited_greedy'");
  EXPECT_TRUE(refusal("[1]").starts_with(": not a JSON object"));
  EXPECT_EQ(refusal("{\n \"a\" 1}"), ":2:6: not JSON: found '1', ':' is expected between a key and its value");
  const std::string v2 = R"({"model_type": "deepseek_v2", )" + sizes_;
  EXPECT_NE(refusal(v2 + R"(, "norm_topk_prob": true})").find("'norm_topk_prob' is true"), std::string::npos);
  EXPECT_NE(refusal(v2 + R"(, "scoring_func": "sigmoid"})").find("has 'softmax'"), std::string::npos);
  EXPECT_NE(refusal(v2 + R"(, "rope_interleave": false})").find("rotates neighbours"), std::string::npos);
  const std::string v3 = R"({"model_type": "deepseek_v3", "n_group": 1, "topk_group": 1, )" + sizes_;
  EXPECT_NE(refusal(v3 + R"(, "scoring_func": "softmax"})").find("has \"sigmoid\""), std::string::npos);
  EXPECT_NE(refusal(v3 + R"(, "num_local_experts": 9})").find("they are one key"), std::string::npos);
  EXPECT_NE(refusal(v3 + R"(, "heddle": 1})").find("'heddle' is 1"), std::string::npos);
  EXPECT_NE(refusal(std::string(1000, '[')), "accepted");
}

// Transformers writes one prediction layer by default; what lies beside the file tells whether it is there.
TEST_F(HuggingFace, PredictionLayersAreThoseWithWeights) {
  const std::string text =
      R"({"model_type": "deepseek_v3", "n_group": 1, "topk_group": 1, "num_mtp_layers": 1, )" + sizes_ + "}";
  std::vector<std::string> warnings;
  EXPECT_EQ(read_huggingface_config(with(text), &warnings).num_nextn_predict_layers, 1);
  const auto weights = [&](const std::string& last) {
    std::ofstream(folder_ / "model.safetensors.index.json")
        << R"({"weight_map": {"model.layers.1.input_layernorm.weight": "a.safetensors", ")" << last
        << R"(": "a.safetensors"}})";
  };
  weights("model.layers.2.eh_proj.weight");
  EXPECT_EQ(read_huggingface_config(with(text), &warnings).num_nextn_predict_layers, 1);
  EXPECT_TRUE(warnings.empty());
  weights("model.layers.0.input_layernorm.weight");
  EXPECT_EQ(read_huggingface_config(with(text), &warnings).num_nextn_predict_layers, 0);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("taken as 0"), std::string::npos);
}

// The table that the released models' rotary scale follows: attention_factor, both mscales, or neither.
TEST_F(HuggingFace, YarnScalesAsTransformersDoes) {
  const auto scale = [&](const std::string& keys) {
    const model::ModelConfig c = read_huggingface_config(with(
        R"({"model_type": "deepseek_v3", "n_group": 1, "topk_group": 1, "rope_scaling": {"type": "yarn", "factor": 4)" +
        keys + "}, " + sizes_ + "}"));
    return std::pair(c.rope_scaling->rotary_scale(1), c.softmax_scale() * std::sqrt(12.0));
  };
  const double ln4 = std::log(4.0);
  const auto m = [&](double x) { return 0.1 * x * ln4 + 1; };
  const auto expect = [&](const std::string& keys, double rotary, double softmax) {
    EXPECT_NEAR(scale(keys).first, rotary, 1e-15) << keys;
    EXPECT_NEAR(scale(keys).second, softmax, 1e-15) << keys;
  };
  expect("", m(1), 1);
  expect(R"(, "mscale": 0.7)", m(1), 1);
  expect(R"(, "mscale_all_dim": 0.7)", m(1), m(0.7) * m(0.7));
  expect(R"(, "mscale": 0.9, "mscale_all_dim": 0.7)", m(0.9) / m(0.7), m(0.7) * m(0.7));
  expect(R"(, "mscale": 0.9, "mscale_all_dim": 0.7, "attention_factor": 1.5)", 1.5, m(0.7) * m(0.7));
}

}  // namespace
}  // namespace heddle::config
