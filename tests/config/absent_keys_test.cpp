// Files that leave keys out, name things as older files do, or name another family than they say: read as
// Transformers reads them, or refused by what is wrong.
#include <gtest/gtest.h>

#include "heddle/config/families/family.h"
#include "heddle/config/shape_json.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

class AbsentKeys : public ReleasedConfig {
 protected:
  static Json file(const char* type) {
    Json json = Json::parse(R"({"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 4,
      "intermediate_size": 96, "num_attention_heads": 8})");
    json["model_type"] = type;
    return json;
  }
  std::string refusal(const Json& json) {
    const std::string said = message(json), place = (folder_ / "config.json") + std::string(": ");
    return said.starts_with(place) ? said.substr(place.size()) : said;
  }
};

TEST_F(AbsentKeys, HaveTheFamilysValues) {
  const struct {
    const char* type;
    int64_t positions, key_heads, head_dim;
  } kFamilies[] = {{"llama", 2048, 8, 8},           {"mistral", 131072, 8, 8},    {"mixtral", 131072, 8, 8},
                   {"qwen2", 32768, 8, 8},          {"ernie4_5", 131072, 2, 128}, {"gemma2", 8192, 4, 256},
                   {"gemma3_text", 131072, 4, 256}, {"seed_oss", 524288, 8, 128}, {"smollm3", 32768, 4, 8}};
  for (const auto& family : kFamilies) {
    ASSERT_EQ(message(file(family.type)), "");
    EXPECT_EQ(read_.max_position_embeddings, family.positions) << family.type;
    EXPECT_EQ(read_.num_key_value_heads, family.key_heads) << family.type;
    EXPECT_EQ(read_.head_dim, family.head_dim) << family.type;
    ASSERT_EQ(message(file(family.type), R"({"num_key_value_heads": null})"), "");
    EXPECT_EQ(read_.num_key_value_heads, 8) << family.type;
  }
  ASSERT_EQ(message(file("hy_v3"), R"({"num_experts": 8})"), "");
  EXPECT_EQ(read_.initializer_range, 0.006);
  ASSERT_EQ(message(file("flex_olmo")), "");
  EXPECT_EQ(read_.rms_norm_eps, 1e-6);
  ASSERT_EQ(message(file("llama"), R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})"), "");
  EXPECT_EQ(read_.rope_scaling->original_max_position_embeddings, 2048);
  EXPECT_EQ(refusal({{"model_type", "llama"}}), "'vocab_size' is missing");
}

TEST_F(AbsentKeys, OlderWordsForLayers) {
  Json json = file("granitemoehybrid");
  json.update(Json::parse(R"({"layer_types": ["mamba", "attention", "mamba", "mamba"], "num_local_experts": 0})"));
  ASSERT_EQ(message(json), "");
  const model::ModelConfig old = read_;
  json["layer_types"] = {"linear_attention", "full_attention", "linear_attention", "linear_attention"};
  ASSERT_EQ(message(json), "");
  EXPECT_EQ(read_, old);
  json = file("glm_moe_dsa");
  json.update(Json::parse(R"({"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1})"));
  json["layer_types"] = Json(4, "deepseek_sparse_attention");
  EXPECT_EQ(message(json), "");
}

// Transformers reads no hidden_act where the activation has another name.
TEST_F(AbsentKeys, AnActivationUnderAnotherName) {
  for (const char* type : {"gemma2", "gemma3_text"}) {
    EXPECT_EQ(message(file(type), R"({"hidden_act": "relu"})"), "");
    EXPECT_NE(message(file(type), R"({"hidden_activation": "relu"})").find("'hidden_activation' is \"relu\""),
              std::string::npos);
  }
  EXPECT_NE(message(file("qwen2"), R"({"hidden_act": "relu"})").find("only 'silu'"), std::string::npos);
}

// Keys of generation, which older files have in text_config too, and second names.
TEST_F(AbsentKeys, SayNothingNew) {
  ASSERT_EQ(message(file("llama"), R"({"hidden_act": "swish", "add_cross_attention": false, "pruned_heads": {},
    "tf_legacy_loss": false, "num_beams": 1, "typical_p": 1.0, "early_stopping": false})"),
            "");
  EXPECT_TRUE(warnings_.empty());
  EXPECT_NE(message(file("llama"), R"({"add_cross_attention": true})").find("'add_cross_attention' is true"),
            std::string::npos);
}

TEST_F(AbsentKeys, ModelOptimizersOlderFiles) {
  EXPECT_EQ(
      message(file("llama"), R"({"quantization_config": {"quant_algo": "FP8", "producer": {"name": "modelopt"}}})"),
      "");
  EXPECT_NE(message(file("llama"), R"({"quantization_config": {"producer": {"name": "other"}}})").find("quantised"),
            std::string::npos);
}

TEST_F(AbsentKeys, AnotherFamilyThanTheFileSays) {
  Json json = file("qwen2");
  json["architectures"] = {"Qwen3ForCausalLM"};
  const char* expected =
      R"('architectures' is ["Qwen3ForCausalLM"] beside 'model_type' "qwen2", accepted: 'Qwen2ForCausalLM')";
  EXPECT_EQ(refusal(json), expected);
  json = {{"model_type", "mistral3"}, {"text_config", {{"model_type", "qwen2"}}}};
  EXPECT_EQ(refusal(json), R"('text_config.model_type' is "qwen2" beside 'model_type' "mistral3", accepted: )"
                           R"('mistral', 'ministral3', 'mistral4')");
  try {  // families that the table of forms has no row for
    json = file("qwen3_5");
    json["architectures"] = {"Qwen3_5Model"};
    message(json);
    read_shape_json(folder_ / "config.json", "x");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("accepted: 'Qwen3_5ForConditionalGeneration'"), std::string::npos)
        << error.what();
  }
  json = file("qwen3_5");
  EXPECT_EQ(refusal(json), "'text_config' is missing, an object is expected");
  EXPECT_NE(refusal({{"architectures", {"LlamaForCausalLn"}}}).find("did you mean 'LlamaForCausalLM'"),
            std::string::npos);
}

TEST_F(AbsentKeys, TextBesidePictures) {
  Json text = file("qwen3_vl_text");
  text["num_key_value_heads"] = 2;
  Json json{{"model_type", "qwen3_vl"}, {"text_config", text}, {"vision_config", Json::object()}};
  json["text_config"]["rope_parameters"] = Json::parse(
      R"({"rope_type": "default", "rope_theta": 5e6, "mrope_section": [24, 20, 20], "mrope_interleaved": true})");
  ASSERT_EQ(message(json), "");
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(read_.rope_theta, 5e6);
  EXPECT_TRUE(read_.qk_norm);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "qwen3");
  json["model_type"] = "qwen3_vl_moe";
  json["text_config"].update(
      Json::parse(R"({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "norm_topk_prob": false})"));
  EXPECT_EQ(refusal(json), "'norm_topk_prob' is false: gates sum to one");
  // Released files transpose each expert's matrices; those of Transformers 5 do not.
  json["text_config"]["norm_topk_prob"] = true;
  const Family* family = find_family(json);
  ASSERT_NE(family, nullptr);
  const std::vector<ReleasedPlace> places =
      places_of("model.layers.2.mlp.experts.1.up_proj.weight", {16, 64}, 4, {}, family);
  const std::string name = "model.language_model.layers.2.mlp.experts.gate_up_proj";
  const ReleasedPlace turned{name, {4, 64, 32}, 64 * 32 + 16, 1, 32, false},
      plain{name, {4, 32, 64}, 48 * 64, 64, 1, false};
  EXPECT_EQ(places[0], turned);
  EXPECT_NE(std::find(places.begin(), places.end(), plain), places.end());
  // The first files of Qwen2.5-VL have the text model's keys at the root.
  json = file("qwen2_5_vl");
  json["num_key_value_heads"] = 2;
  json["rope_scaling"] = Json::parse(R"({"type": "mrope", "mrope_section": [1, 1, 2]})");
  json["vision_config"] = Json::object();
  ASSERT_EQ(message(json), "");
  EXPECT_TRUE(warnings_.empty());
  EXPECT_FALSE(read_.rope_scaling.has_value());
  const model::ModelConfig flat = read_;
  for (const char* name : {"model_type", "vision_config"}) json.erase(name);
  ASSERT_EQ(message(Json{{"model_type", "qwen2_5_vl"}, {"text_config", json}}), "");
  EXPECT_EQ(read_, flat);
  // Gemma 3's say only what differs from its smallest one.
  json = {{"model_type", "gemma3"}, {"text_config", {{"hidden_size", 2560}, {"num_hidden_layers", 34}}}};
  ASSERT_EQ(message(json), "");
  EXPECT_EQ(read_.vocab_size, 262208);
  EXPECT_EQ(read_.num_attention_heads, 8);
  EXPECT_EQ(read_.hidden_size, 2560);
  json["text_config"]["final_logit_softcapping"] = 30;
  EXPECT_NE(refusal(json).find("'final_logit_softcapping' is 30"), std::string::npos);
}

}  // namespace
}  // namespace heddle::config
