// The sizes of a model's config.json, for what reckons with them: families that are not built too.
#include "heddle/config/shape_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/base/error.h"
#include "heddle/config/model_json.h"
#include "tests/support/scratch_folder.h"

namespace heddle::config {
namespace {

class ShapeJson : public testing::Test {
 protected:
  model::Shape read(const std::string& json) {
    std::ofstream(folder_ / "config.json") << json;
    return read_shape_json(folder_ / "config.json", "a model");
  }
  std::string refusal(const std::string& json) {
    try {
      read(json);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  ScratchFolder folder_;
};

TEST_F(ShapeJson, OfAFamilyThatIsNotBuilt) {
  const model::Shape s =
      read(R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "vocab_size": 64,
      "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": null,
      "intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 2, "tie_word_embeddings": true,
      "sliding_window": "any"})");
  EXPECT_EQ(s.name, "a model");
  EXPECT_EQ(s.head_dim, 8) << "what the heads share";
  EXPECT_EQ(s.num_key_value_heads, 2);
  EXPECT_EQ(s.n_routed_experts, 8);
  EXPECT_EQ(s.moe_intermediate_size, 48) << "of a dense block, where nothing else is said";
  EXPECT_TRUE(s.tie_word_embeddings);
  EXPECT_FALSE(s.is_latent());
}

// What the strict reader makes of a family's file and what this one does are one model.
TEST_F(ShapeJson, IsTheModelOfTheStrictReader) {
  for (const char* name : {"grouped", "mtp", "yarn", "qwen3"}) {
    const std::string path = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/" + name + "/config.json";
    const model::Shape s = read_shape_json(path, name);
    const model::ModelConfig c = read_huggingface_config(path);
    EXPECT_EQ(s.hidden_size, c.hidden_size) << name;
    EXPECT_EQ(s.num_hidden_layers, c.num_hidden_layers) << name;
    EXPECT_EQ(s.num_attention_heads, c.num_attention_heads) << name;
    EXPECT_EQ(s.vocab_size, c.vocab_size) << name;
    EXPECT_EQ(s.tie_word_embeddings, c.tie_word_embeddings) << name;
    EXPECT_EQ(s.is_latent(), c.is_latent()) << name;
    EXPECT_EQ(s.n_routed_experts, c.has_experts() ? c.n_routed_experts : 0) << name;
    if (c.is_latent()) continue;
    EXPECT_EQ(s.head_dim, c.head_dim) << name;
  }
}

TEST_F(ShapeJson, RefusesWithTheKey) {
  EXPECT_NE(refusal("[1]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": "llama", "hidden_size": "many"})")
                .find("'hidden_size' is \"many\", a whole number is expected"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": "llama", "hidden_size": -1})")
                .find("'hidden_size' is -1, accepted: a whole number from 0 to"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": "llama", "hidden_size": 10000000000})")
                .find("accepted: a whole number from 0 to 1000000000"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"model_type": "llama"})").find("'hidden_size' is missing"), std::string::npos);
}

// Counts of Transformers (tests/families/counts_test.py --write).
TEST_F(ShapeJson, CountsTheParametersOfTransformers) {
  const nlohmann::json all = nlohmann::json::parse(
      std::ifstream(std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/parameter_counts.json"));
  ASSERT_GT(all.size(), 60U);
  for (const nlohmann::json& each : all) {
    const model::Shape s = read(each["config"].dump());
    EXPECT_EQ(std::llround(model::total_parameters(s)), each["parameters"].get<int64_t>())
        << each["config"]["model_type"];
  }
}

// No family is counted by the words that others have.
TEST_F(ShapeJson, RefusesAFamilyWithoutARow) {
  const std::string sizes =
      R"("vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
      "num_key_value_heads": 2, "intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 2})";
  for (const char* type : {"zamba2", "jamba", "bert", "a family of tomorrow"}) {
    const std::string said = refusal("{\"model_type\": \"" + std::string(type) + "\", " + sizes);
    EXPECT_NE(said.find("'model_type' is \"" + std::string(type) + "\": the parameters of this family"),
              std::string::npos)
        << said;
  }
  EXPECT_NE(refusal("{" + sizes).find("'model_type' is missing"), std::string::npos);
  EXPECT_EQ(refusal("{\"model_type\": \"mixtral\", " + sizes), "accepted");
}

// A form of a known family that other parameters belong to.
TEST_F(ShapeJson, RefusesAnotherFormByItsKey) {
  const std::string opt = R"({"model_type": "opt", "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3,
      "num_attention_heads": 4, "ffn_dim": 48, "max_position_embeddings": 128, "word_embed_proj_dim": )";
  EXPECT_EQ(refusal(opt + "32}"), "accepted");
  EXPECT_NE(refusal(opt + "16}").find("'word_embed_proj_dim' is 16: parameters of this form are not counted"),
            std::string::npos);
}

}  // namespace
}  // namespace heddle::config
