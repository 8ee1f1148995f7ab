// MiniMax-M3: files as released and as Transformers writes them, names of tensors, keys of blocks that do not go
// together.
#include <gtest/gtest.h>

#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

using model::IndexBlocks;
using model::ModelConfig;

class MiniMaxM3 : public ReleasedConfig {
 protected:
  void refused(const Json& json, const char* part) {
    const std::string found = message(json);
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  }
  static Json with(Json json, const char* change) {
    json.merge_patch(Json::parse(change));
    return json;
  }
  /// As Transformers writes its defaults, but for the kinds of layers.
  static Json text() {
    Json json = Json::parse(R"({"architectures": ["MiniMaxM3VLForCausalLM"], "attention_dropout": 0.0,
      "dense_intermediate_size": 12288, "head_dim": 128, "hidden_act": "silu", "hidden_size": 6144,
      "index_block_size": 128, "index_head_dim": 128, "index_local_blocks": 1, "index_n_heads": 4,
      "index_topk_blocks": 16, "initializer_range": 0.02, "intermediate_size": 3072,
      "max_position_embeddings": 524288, "model_type": "minimax_m3_vl_text", "num_attention_heads": 64,
      "num_experts_per_tok": 4, "num_hidden_layers": 60, "num_key_value_heads": 4, "num_local_experts": 128,
      "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_parameters": {"partial_rotary_factor": 0.5,
      "rope_theta": 5000000.0, "rope_type": "default"}, "rotary_dim": 64, "routed_scaling_factor": 2.0,
      "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "shared_intermediate_size": 3072,
      "swiglu_alpha": 1.702, "swiglu_limit": 7.0, "tie_word_embeddings": false, "use_cache": true,
      "vocab_size": 200064})");
    json["layer_types"] = Json(60, "minimax_m3_sparse");
    json["mlp_layer_types"] = Json(60, "sparse");
    return json;
  }
};

TEST_F(MiniMaxM3, IsReadAsTransformersWritesIt) {
  EXPECT_EQ(message(text()), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("minimax-m3"));
  EXPECT_EQ(family_of(read_).model_type, "minimax_m3_vl_text");
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
  Json mixed = with(text(), R"({"num_hidden_layers": 4, "shared_intermediate_size": 1024})");
  mixed["layer_types"] = {"full_attention", "minimax_m3_sparse", "full_attention", "minimax_m3_sparse"};
  mixed["mlp_layer_types"] = {"dense", "dense", "sparse", "sparse"};
  EXPECT_EQ(message(mixed), "");
  EXPECT_EQ(read_.index_pattern, "*I*I");
  EXPECT_EQ(read_.index_topk, 2048);
  EXPECT_EQ(read_.first_k_dense_replace, 2);
  EXPECT_EQ(read_.shared_width(), 1024);
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
  mixed["mlp_layer_types"] = {"sparse", "dense", "sparse", "dense"};
  EXPECT_EQ(message(mixed), "");
  EXPECT_EQ(read_.mlp_pattern, "E-E-");
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
  mixed.erase("layer_types");
  EXPECT_EQ(message(mixed), "");
  EXPECT_FALSE(read_.selects());
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
}

TEST_F(MiniMaxM3, ReleasedFilesSayTheSame) {
  Json inner = with(text(), R"({"num_hidden_layers": 4, "architectures": null, "hidden_act": "swigluoai",
    "index_block_size": null, "index_head_dim": null, "index_local_blocks": null, "index_n_heads": null,
    "index_topk_blocks": null, "moe_layer_freq": [0, 1, 1, 1], "rope_parameters": null, "rope_theta": 5000000,
    "partial_rotary_factor": 0.5, "sparse_attention_config": {"sparse_num_index_heads": 4, "sparse_index_dim": 128,
    "sparse_block_size": 64, "sparse_topk_blocks": 8, "sparse_local_block": 2,
    "sparse_attention_freq": [0, 1, 0, 1]}})");
  inner.erase("layer_types");
  inner.erase("mlp_layer_types");
  Json outer{{"architectures", {"MiniMaxM3SparseForConditionalGeneration"}},
             {"model_type", "minimax_m3_vl"},
             {"tie_word_embeddings", false},
             {"vision_config", Json::object()},
             {"text_config", inner}};
  EXPECT_EQ(message(outer), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  ModelConfig expected = preset("minimax-m3");
  expected.num_hidden_layers = 4;
  expected.first_k_dense_replace = 1;
  expected.index_pattern = "*I*I";
  expected.index_block_size = 64;
  expected.index_topk = 512;
  expected.index_local_blocks = 2;
  EXPECT_EQ(read_, expected);
  outer["text_config"]["sparse_attention_config"]["sparse_value"] = 1;
  outer["text_config"].erase("partial_rotary_factor");
  EXPECT_EQ(message(outer), "");
  EXPECT_EQ(read_.partial_rotary_factor, 1);
  ASSERT_EQ(warnings_.size(), 2);
  const std::string both = warnings_[0] + warnings_[1];
  EXPECT_NE(both.find("'rotary_dim' is 64"), std::string::npos) << both;
  EXPECT_NE(both.find("'sparse_attention_config.sparse_value' is not known"), std::string::npos) << both;
  outer["text_config"]["moe_layer_freq"] = {0, 2, 1, 1};
  refused(outer, "'moe_layer_freq' has 2");
  outer["text_config"] = 3;
  refused(outer, "an object is expected");
}

TEST_F(MiniMaxM3, SaysWhatItRefuses) {
  refused(with(text(), R"({"layer_types": ["minimax_m3_sparse"]})"), "each of 60 layers is 'full_attention' or");
  refused(with(text(), R"({"mlp_layer_types": 1})"), "each of 60 layers is 'sparse' or 'dense'");
  refused(with(text(), R"({"sparse_attention_config": [1]})"), "an object is expected");
  refused(with(text(), R"({"index_n_heads": 2})"), "each head chooses for one key head");
  refused(with(text(), R"({"index_local_blocks": 17})"),
          "more than model.index_topk ÷ model.index_block_size (16)");
  refused(with(text(), R"({"index_head_dim": 32})"), "must be at least");
  refused(with(text(), R"({"swiglu_limit": 0})"), "a number above 0");
  refused(with(text(), R"({"scoring_func": "softmax"})"), "scores are sigmoids");
}

TEST_F(MiniMaxM3, NamesTensorsAsItsFoldersDo) {
  const auto find = [](std::string_view type) {
    return *std::find_if(families().begin(), families().end(),
                         [&](const Family& f) { return f.model_type == type; });
  };
  const Family released = find("minimax_m3_vl"), text_alone = find("minimax_m3_vl_text");
  const auto name = [&](const char* ours) { return place_in(released, ours, {4, 6}, 0).name; };
  const std::string layer = "language_model.model.layers.3.";
  EXPECT_EQ(name("lm_head.weight"), "language_model.lm_head.weight");
  EXPECT_EQ(name("model.layers.3.self_attn.indexer.q_norm.weight"), layer + "self_attn.index_q_norm.weight");
  EXPECT_EQ(name("model.layers.3.mlp.gate.weight"), layer + "block_sparse_moe.gate.weight");
  EXPECT_EQ(name("model.layers.3.mlp.gate.e_score_correction_bias"),
            layer + "block_sparse_moe.e_score_correction_bias");
  EXPECT_EQ(name("model.layers.3.mlp.shared_experts.up_proj.weight"),
            layer + "block_sparse_moe.shared_experts.up_proj.weight");
  EXPECT_EQ(name("model.layers.3.mlp.gate_proj.weight"), layer + "mlp.gate_proj.weight");
  EXPECT_EQ(place_in(released, "model.layers.3.mlp.experts.5.up_proj.weight", {4, 6}, 8).name,
            layer + "block_sparse_moe.experts.5.w3.weight");
  const ReleasedPlace up = place_in(text_alone, "model.layers.3.mlp.shared_experts.up_proj.weight", {4, 6}, 0);
  EXPECT_EQ(up.name, "model.layers.3.mlp.shared_experts.gate_up_proj.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{8, 6}));
  EXPECT_EQ(up.first, 24);
  EXPECT_EQ(place_in(text_alone, "model.layers.3.mlp.experts.5.down_proj.weight", {6, 4}, 8).name,
            "model.layers.3.mlp.experts.down_proj");
  const auto has = [](std::string_view) { return true; };
  for (const char* other : {"patch_merge_mlp.linear_1.bias", "vision_tower.vision_model.pre_layrnorm.weight",
                            "multi_modal_projector.linear_1.weight", "language_model.model.mtp.0.norm.weight"})
    EXPECT_TRUE(is_passed_over(other, has)) << other;
  EXPECT_FALSE(is_passed_over("language_model.model.norm.weight", has));
}

TEST(IndexBlocks, KeysGoTogether) {
  const auto why = [](void (*change)(ModelConfig&)) -> std::string {
    ModelConfig c = preset("minimax-m3");
    c.num_hidden_layers = 4;
    change(c);
    try {
      model::validate(c);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  const auto expect = [&](void (*change)(ModelConfig&), const char* part) {
    const std::string found = why(change);
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  EXPECT_EQ(why([](ModelConfig&) {}), "");
  EXPECT_EQ(why([](ModelConfig& c) { c.index_pattern = "*ISI"; }), "");
  expect([](ModelConfig& c) { c.index_pattern = "*I"; }, "a letter a layer");
  expect([](ModelConfig& c) { c.index_pattern = "*IXI"; }, "has 'X' as layer 2");
  expect([](ModelConfig& c) { c.index_pattern = "*SII"; }, "no layer before it has an indexer");
  expect([](ModelConfig& c) { c.index_pattern = "****"; }, "no layer has an indexer");
  expect([](ModelConfig& c) { c.index_pattern = "IIII", c.index_topk_freq = 2; }, "model.index_topk_freq = 1");
  expect([](ModelConfig& c) { c.index_topk = 0; }, "a model.index_topk");
  expect([](ModelConfig& c) { c.index_topk = 100; }, "no multiple of model.index_block_size (128)");
  expect([](ModelConfig& c) { c.index_blocks = IndexBlocks::none, c.index_stage = model::IndexStage::sparse; },
         "grouped attention selects blocks of keys");
  expect([](ModelConfig& c) { c.index_blocks = IndexBlocks::gated; }, "model.attention = \"latent\"");
  expect([](ModelConfig& c) { c.index_blocks = IndexBlocks::mean; }, "model.index_local_blocks = 0");
  expect([](ModelConfig& c) { c.sliding_window = 4; }, "model.sliding_window = 0");
  expect([](ModelConfig& c) { c.attention_logit_cap = 30; }, "model.attention_logit_cap = 0");
}

}  // namespace
}  // namespace heddle::config
