// Which layers have a recurrence, as released files and those of Transformers say it.
#include <gtest/gtest.h>

#include <fstream>

#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "tests/support/scratch_folder.h"

namespace heddle::config {
namespace {

using model::ModelConfig;

class LayerKinds : public testing::Test {
 protected:
  /// What is wrong with a config.json of this text; "" where it is read.
  std::string read_text(const std::string& text) {
    std::ofstream(folder_ / "config.json") << text;
    warnings_.clear();
    try {
      read_ = read_huggingface_config(folder_ / "config.json", &warnings_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  bool same_again() const { return model_config_from_json(model_config_to_json(read_), "x") == read_; }

  ScratchFolder folder_;
  ModelConfig read_;
  std::vector<std::string> warnings_;
};

TEST_F(LayerKinds, OfKimiLinearAndMiniMaxAreRead) {
  const auto read = [&](const Json& json) { return read_text(json.dump()); };
  const Json kimi = Json::parse(R"({"architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear",
    "first_k_dense_replace": 1, "head_dim": 72, "hidden_act": "silu", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "kv_lora_rank": 512, "linear_attn_config": {
      "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128,
      "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
      "num_heads": 32, "short_conv_kernel_size": 4},
    "mla_use_nope": true, "model_max_length": 1048576, "moe_intermediate_size": 1024, "moe_layer_freq": 1,
    "moe_renormalize": true, "moe_router_activation_func": "sigmoid", "num_attention_heads": 32,
    "num_expert_group": 1, "num_experts": 256, "num_experts_per_token": 8, "num_hidden_layers": 27,
    "num_key_value_heads": 32, "num_nextn_predict_layers": 0, "num_shared_experts": 1, "q_lora_rank": null,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000.0, "routed_scaling_factor": 2.446, "tie_word_embeddings": false, "topk_group": 1,
    "use_grouped_topk": true, "v_head_dim": 128, "vocab_size": 163840})");
  EXPECT_EQ(read(kimi), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("kimi-linear-48b-a3b"));
  EXPECT_TRUE(same_again());
  EXPECT_TRUE(read_.is_recurrent(25));
  EXPECT_FALSE(read_.is_recurrent(26));
  const auto with = [](Json json, const char* change) {
    json.merge_patch(Json::parse(change));
    return json;
  };
  const auto refused = [&](const Json& json, const char* part) {
    const std::string found = read(json);
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(with(kimi, R"({"linear_attn_config": {"kda_layers": [1, 2]}})"), "has layer 3 in neither");
  refused(with(kimi, R"({"linear_attn_config": {"kda_layers": [1, 2, 28]}})"), "each of 27 layers stands once");
  refused(with(kimi, R"({"linear_attn_config": {"head_dims": 1}})"), "linear_attn_config.head_dims");
  refused(with(kimi, R"({"linear_attn_config": [1]})"), "an object is expected");
  refused(with(kimi, R"({"linear_attn_config": {"kda_layers": null, "full_attn_layers": null}})"),
          "must say which layers have attention");
  refused(with(kimi, R"({"mla_use_nope": false})"), "turns nothing");
  refused(with(kimi, R"({"num_nextn_predict_layers": 1})"), "further tokens");
  refused(with(kimi, R"({"moe_router_activation_func": "softmax"})"), "sigmoids");
  refused(with(kimi, R"({"mlp_layer_types": ["dense"]})"), "first_k_dense_replace");
  const auto of_words = [&](const char* words) {
    return with(kimi, (R"({"num_hidden_layers": 4, "linear_attn_config": null, "linear_head_dim": 16,
                           "linear_num_heads": 8, "first_k_dense_replace": null,
                           "mlp_layer_types": ["dense", "dense", "sparse", "sparse"], "layer_types": )" +
                       std::string(words) + "}")
                          .c_str());
  };
  EXPECT_EQ(read(of_words(R"(["linear_attention", "full_attention", "linear_attention", "full_attention"])")), "");
  EXPECT_EQ(read_.full_attention_interval, 2);
  EXPECT_EQ(read_.first_k_dense_replace, 2);
  EXPECT_EQ(read_.linear_value_head_dim, 16);
  EXPECT_TRUE(same_again());
  read_.full_attention_interval =
      9;  // the same by its last layer alone, and by words that another number means, too
  read_.full_attention_last = true;
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read(of_words(R"(["full_attention", "full_attention", "full_attention", "full_attention"])")), "");
  EXPECT_FALSE(read_.recurs());
  EXPECT_TRUE(same_again());
  refused(of_words(R"(["full_attention", "linear_attention", "linear_attention", "full_attention"])"), "not built");
  refused(of_words(R"(["linear_attention", "mamba", "linear_attention", "full_attention"])"),
          "'linear_attention' or");

  const Json minimax = Json::parse(R"({"architectures": ["MiniMaxText01ForCausalLM"], "attention_dropout": 0.0,
    "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1], "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size": 9216,
    "layernorm_full_attention_alpha": 3.5565588200778455, "layernorm_full_attention_beta": 1.0,
    "layernorm_linear_attention_alpha": 3.5565588200778455, "layernorm_linear_attention_beta": 1.0,
    "layernorm_mlp_alpha": 3.5565588200778455, "layernorm_mlp_beta": 1.0, "max_position_embeddings": 10240000,
    "model_type": "minimax_text_01", "num_attention_heads": 64, "num_experts_per_tok": 2, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "num_local_experts": 32, "output_router_logits": false, "postnorm": true,
    "rms_norm_eps": 1e-05, "rope_theta": 10000000, "rotary_dim": 64, "router_aux_loss_coef": 0.001,
    "router_jitter_noise": 0.0, "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid", "sliding_window": null,
    "tie_word_embeddings": false, "vocab_size": 200064})");
  EXPECT_EQ(read(minimax), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  ModelConfig text_01 = preset("minimax-01");
  text_01.num_hidden_layers = 16;
  EXPECT_EQ(read_, text_01);
  EXPECT_TRUE(same_again());
  refused(with(minimax, R"({"attn_type_list": [2]})"), "0 or 1 for each layer");
  refused(with(minimax, R"({"attn_type_list": null})"), "'layer_types' is missing");
  refused(with(minimax, R"({"postnorm": false})"), "normed rows");
  refused(with(minimax, R"({"shared_intermediate_size": 8})"), "shared experts");
}

TEST_F(LayerKinds, OfNemotronAreALetterALayer) {
  // Python writes a bound that is none as a word that JSON does not have.
  const auto with = [](const std::string& more) {
    return R"({"architectures": ["NemotronHForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 1, "chunk_size": 128, "conv_kernel": 4, "eos_token_id": 2, "expand": 2, "head_dim": 128,
      "hidden_dropout": 0.0, "hidden_size": 2688, "initializer_range": 0.02, "intermediate_size": 1856,
      "layer_norm_epsilon": 1e-05, "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 64,
      "mamba_proj_bias": false, "mamba_ssm_cache_dtype": "float32", "max_position_embeddings": 262144,
      "mlp_bias": false, "mlp_hidden_act": "relu2", "model_type": "nemotron_h", "moe_intermediate_size": 1856,
      "moe_shared_expert_intermediate_size": 3712, "n_group": 1, "n_groups": 8, "n_routed_experts": 128,
      "n_shared_experts": 1, "norm_eps": 1e-05, "norm_topk_prob": true, "num_attention_heads": 32,
      "num_experts_per_tok": 6, "num_key_value_heads": 2, "num_logits_to_keep": 1, "pad_token_id": 0,
      "partial_rotary_factor": 1.0, "rescale_prenorm_residual": true, "residual_in_fp32": false, "rope_theta": 10000,
      "routed_scaling_factor": 2.5, "sliding_window": null, "ssm_state_size": 128, "tie_word_embeddings": false,
      "time_step_floor": 0.0001, "time_step_max": 0.1, "time_step_min": 0.001, "topk_group": 1,
      "torch_dtype": "bfloat16", "use_bias": false, "use_cache": true, "use_conv_bias": true,
      "use_mamba_kernels": true, "vocab_size": 131072, )" +
           more + "}";
  };
  const std::string released = R"("time_step_limit": [0.0, Infinity], "num_hidden_layers": 52,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME")";
  EXPECT_EQ(read_text(with(released)), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("nemotron-3-nano-30b-a3b"));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_.blocks_of(5), "*");
  EXPECT_EQ(read_.blocks_of(0), "M");
  EXPECT_EQ(read_.blocks_of(52), "*E");  // of a further token
  for (const char* name : {"nemotron-3-super-120b-a12b", "nemotron-nano-9b-v2"}) {
    read_ = preset(name);
    EXPECT_TRUE(same_again()) << name;
  }
  EXPECT_EQ(read_text(with(R"("layers_block_type": ["mamba", "mlp", "full_attention", "moe"],
    "time_step_limit": [0.01, {"__float__": "Infinity"}])")),
            "");
  EXPECT_EQ(read_.hybrid_override_pattern, "M-*E");
  EXPECT_EQ(read_.num_hidden_layers, 4);
  EXPECT_EQ(read_.linear_step_least, 0.01);
  EXPECT_EQ(read_.linear_step_most, 0);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_text(with(R"("hybrid_override_pattern": "-*", "time_step_limit": [0, 0.5])")), "");
  EXPECT_FALSE(read_.recurs());
  EXPECT_FALSE(read_.has_experts());
  EXPECT_TRUE(same_again());
  const auto refused = [&](const std::string& more, const char* part) {
    const std::string found = read_text(with(more));
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(R"("num_hidden_layers": 3, "hybrid_override_pattern": "M-")",
          "has 2 letters, and model.num_hidden_layers is 3");
  refused(R"("hybrid_override_pattern": "M-X")", "has 'X' as layer 2, accepted: M, *, - or E");
  refused(R"("tie": 1)", "'hybrid_override_pattern' is null");
  refused(R"("layers_block_type": ["mamba", "conv"])", "a list of 'mamba'");
  refused(R"("layers_block_type": ["mamba"], "hybrid_override_pattern": "*")", "says something else");
  refused(R"("hybrid_override_pattern": "M", "time_step_limit": 1)", "the least and the largest time step");
  refused(R"("hybrid_override_pattern": "M", "time_step_limit": [0.5, 0.1])", "less than model.linear_step_least");
  refused(R"("hybrid_override_pattern": "ME", "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "ME")",
          "a further token has");
  refused(R"("hybrid_override_pattern": "ME", "num_nextn_predict_layers": 2)",
          "num_nextn_predict_layers of 1 at most");
  for (const char* key : {"use_bias", "residual_in_fp32", "mamba_proj_bias"})
    refused(fmt::format(R"("hybrid_override_pattern": "M", "{}": true)", key), "not built");
}

}  // namespace
}  // namespace heddle::config
