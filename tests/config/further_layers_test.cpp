// Layers that predict further tokens in released files: how many there are, what they have and what their tensors
// are called.
#include "heddle/config/families/family.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

class FurtherLayers : public ReleasedConfig {
 protected:
  void weights_beside(const std::string& name) {
    std::ofstream(folder_ / "model.safetensors.index.json")
        << R"({"weight_map": {"model.norm.weight": "a.safetensors", ")" << name << R"(": "a.safetensors"}})";
  }
  static std::string spelt(const std::string& type, const std::string& name) {
    return name_in(*find_family(Json{{"model_type", type}}), name);
  }
};

TEST_F(FurtherLayers, OfDeepSeekV4HaveAWindowAlone) {
  const Json file = Json::parse(R"({"model_type": "deepseek_v4", "num_hidden_layers": 3, "vocab_size": 64,
      "compress_ratios": [128, 128, 4, 0], "num_nextn_predict_layers": 1})");
  expect_read(file);
  EXPECT_EQ(read_.compression_pattern, "HHS");
  EXPECT_EQ(read_.num_nextn_predict_layers, 1);
  EXPECT_EQ(read_.compression_of(3), model::Compression::window);
  EXPECT_EQ(model_config_to_json(read_)["num_nextn_predict_layers"], 1);
  EXPECT_NE(message(file, R"({"compress_ratios": [128, 128, 4, 4]})").find("accepted: 0"), std::string::npos);
  weights_beside("mtp.0.e_proj.weight");
  expect_read(file);
  EXPECT_EQ(read_.num_nextn_predict_layers, 1);
  weights_beside("layers.0.attn_norm.weight");
  EXPECT_EQ(message(file), "");
  EXPECT_EQ(read_.num_nextn_predict_layers, 0);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("taken as 0"), std::string::npos);
}

// As the index of DeepSeek-V4-Flash has them.
TEST_F(FurtherLayers, OfDeepSeekV4AreSpeltAsReleased) {
  for (const auto& [ours, released] : {std::pair{"e_proj.weight", "e_proj.weight"},
                                       {"h_proj.weight", "h_proj.weight"},
                                       {"enorm.weight", "enorm.weight"},
                                       {"shared_head.norm.weight", "norm.weight"},
                                       {"hc_head.hc_fn", "hc_head_fn"},
                                       {"attn_hc.base", "hc_attn_base"},
                                       {"ffn_hc.scale", "hc_ffn_scale"},
                                       {"input_layernorm.weight", "attn_norm.weight"},
                                       {"post_attention_layernorm.weight", "ffn_norm.weight"},
                                       {"self_attn.q_a_norm.weight", "attn.q_norm.weight"},
                                       {"self_attn.kv_norm.weight", "attn.kv_norm.weight"},
                                       {"self_attn.q_a_proj.weight", "attn.wq_a.weight"},
                                       {"self_attn.sinks", "attn.attn_sink"},
                                       {"mlp.gate.e_score_correction_bias", "ffn.gate.bias"},
                                       {"mlp.experts.5.down_proj.weight", "ffn.experts.5.w2.weight"}}) {
    EXPECT_EQ(spelt("deepseek_v4", std::string("mtp.layers.0.") + ours), std::string("mtp.0.") + released);
  }
}

TEST_F(FurtherLayers, OfLongCatLieWhereTheirWeightsDo) {
  const Json file = Json::parse(R"({"model_type": "longcat_flash", "vocab_size": 512, "hidden_size": 64,
      "num_layers": 2, "ffn_hidden_size": 96, "num_attention_heads": 4, "max_position_embeddings": 128,
      "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
      "n_routed_experts": 8, "zero_expert_num": 4, "moe_topk": 3, "expert_ffn_hidden_size": 32})");
  expect_read(file);
  EXPECT_EQ(read_.num_nextn_predict_layers, 0);
  weights_beside("model.mtp.layers.0.eh_proj.weight");
  expect_read(file);
  EXPECT_EQ(read_.num_nextn_predict_layers, 1);
  EXPECT_EQ(read_.blocks_of(4), "*-");
  EXPECT_EQ(read_.blocks_of(2), "*-E");
  const std::string at = "mtp.layers.0.", released = "model.mtp.layers.0.";
  EXPECT_EQ(spelt("longcat_flash", at + "eh_proj.weight"), released + "eh_proj.weight");
  EXPECT_EQ(spelt("longcat_flash", at + "enorm.weight"), released + "enorm.m.weight");
  EXPECT_EQ(spelt("longcat_flash", at + "mlp.up_proj.weight"), released + "transformer_layer.mlp.up_proj.weight");
  EXPECT_EQ(spelt("longcat_flash", at + "self_attn.o_proj.weight"), released + "self_attn.o_proj.weight");
  EXPECT_EQ(spelt("longcat_flash", at + "shared_head.norm.weight"), "model.mtp.norm.weight");
}

TEST_F(FurtherLayers, OfLing2EndInANormOfTheirOwn) {
  const Json file = Json::parse(R"({"model_type": "bailing_moe", "vocab_size": 512, "hidden_size": 64,
      "num_hidden_layers": 4, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 16, "max_position_embeddings": 128, "num_experts": 16, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 1})");
  expect_read(file);
  EXPECT_EQ(read_.num_nextn_predict_layers, 1);
  EXPECT_EQ(model_config_to_json(read_)["model_type"], "bailing_moe");
  EXPECT_EQ(spelt("bailing_moe", "model.layers.4.shared_head.norm.weight"),
            "model.layers.4.final_layernorm.weight");
}

// Also by families whose own files have none.
TEST_F(FurtherLayers, AreKeptInFilesOfEveryFamily) {
  int kept = 0;
  for (const Family& family : families()) {
    for (const Preset& each : family.presets) {
      model::ModelConfig c = each.model;
      c.num_nextn_predict_layers = 1;
      c.nextn_blocks = c.is_compressed() ? "W-" : "*-";
      try {
        model::validate(c);
      } catch (const ConfigError&) {
        continue;
      }
      EXPECT_EQ(model_config_from_json(model_config_to_json(c), "x"), c) << each.name;
      ++kept;
    }
  }
  EXPECT_GT(kept, 100);
}

// Two letters; what they need is named.
TEST_F(FurtherLayers, HaveWhatLettersSay) {
  const auto said = [](const std::string& letters, const std::string& more) -> std::string {
    try {
      parse_run_config("[model]\nnum_nextn_predict_layers = 1\nnextn_blocks = \"" + letters + "\"\n" + more, "x");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(said("*-", ""), "");
  EXPECT_EQ(said("WE", "sliding_window = 8\n"), "");
  EXPECT_NE(said("WE", "").find("a model.sliding_window for its letter W"), std::string::npos);
  EXPECT_NE(said("ME", "").find("a model.recurrence for its letter M"), std::string::npos);
  for (const char* wrong : {"*", "-*", "*-E", "XE"})
    EXPECT_NE(said(wrong, "").find("accepted: *, W or M, and behind it - or E"), std::string::npos) << wrong;
}

}  // namespace
}  // namespace heddle::config
