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
  EXPECT_EQ(read(of_words(R"(["full_attention", "linear_attention", "linear_attention", "full_attention"])")), "");
  EXPECT_EQ(read_.layer_pattern, "*MM*");
  EXPECT_TRUE(same_again());
  read_.layer_pattern = "M*M*";  // the same by another key, too
  EXPECT_TRUE(same_again());
  refused(of_words(R"(["linear_attention", "conv", "linear_attention", "full_attention"])"),
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

TEST_F(LayerKinds, OfLing3FollowFromTheSizeOfAGroup) {
  const auto read = [&](const Json& json) { return read_text(json.dump()); };
  // As released with Ling-3.0-tiny.
  const Json tiny = Json::parse(R"({"architectures": ["BailingMoeV3ForCausalLM"], "model_type": "bailing_hybrid",
    "attention_dropout": 0.0, "embedding_dropout": 0.0, "eos_token_id": 156895, "expert_swiglu_limit_list": null,
    "first_k_dense_replace": 1, "gated_attention_proj_granularity_type": "head_wise", "group_norm_size": 1,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
    "intermediate_size": 4608, "kda_lower_bound": -5, "kda_safe_gate": true, "kv_lora_rank": 512,
    "layer_group_size": 4, "linear_silu": true, "max_position_embeddings": 131072, "max_window_layers": 20,
    "moe_intermediate_size": 512, "moe_router_enable_expert_bias": true,
    "moe_shared_expert_intermediate_size": 512, "mtp_loss_scaling_factor": 0, "mtp_use_kda": false, "n_group": 8,
    "no_kda_lora": true, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 16,
    "num_kv_heads_for_linear_attn": 0, "num_nextn_predict_layers": 0, "num_shared_experts": 1,
    "output_dropout": 0.0, "output_router_logits": false, "pad_token_id": 156892, "partial_rotary_factor": 0.5,
    "q_lora_rank": 256, "qk_head_dim": 192, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
    "rope_interleave": true, "rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 6000000,
      "rope_type": "default"}, "rope_theta": 6000000, "rotary_dim": 64, "routed_scaling_factor": 2.5,
    "router_dtype": "fp32", "scale_router_input": false, "score_function": "sigmoid", "scoring_func": "sigmoid",
    "seq_aux": true, "share_expert_swiglu_limit_list": null, "short_conv_kernel_size": 4,
    "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc", "up_proj_norm": false,
    "use_bias": false, "use_kda_lora": false, "use_mla_nope": false, "use_nGPT": false, "use_qk_norm": true,
    "use_qkv_bias": false, "v_head_dim": 128, "value_norm": false, "vocab_size": 157184})");
  EXPECT_EQ(read(tiny), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("ling-3.0-tiny"));
  EXPECT_TRUE(same_again());
  const auto with = [&](const char* change) {
    Json json = tiny;
    json.merge_patch(Json::parse(change));
    return json;
  };
  // Limits of SwiGLU, of which those of shared experts grow once; layers of further tokens behind the others.
  EXPECT_EQ(read(with(R"({"num_hidden_layers": 4, "num_nextn_predict_layers": 1,
                          "expert_swiglu_limit_list": [0, 0, 0, 4, 0],
                          "share_expert_swiglu_limit_list": [0, 5, 7, 7, 0]})")),
            "");
  EXPECT_EQ(warnings_.size(), 2);
  EXPECT_EQ(read_.experts_limit_of(2), 0);
  EXPECT_EQ(read_.experts_limit_of(3), 4);
  EXPECT_EQ(read_.mlp_limit_of(0), 0);
  EXPECT_EQ(read_.mlp_limit_of(1), 5);
  EXPECT_EQ(read_.mlp_limit_of(3), 7);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read(with(R"({"kda_safe_gate": false})")), "");
  EXPECT_EQ(read_.linear_decay_least, 0);
  EXPECT_TRUE(same_again());
  // Transformers writes words, the width of a recurrent head beside that of rotation, and other names.
  EXPECT_EQ(read(with(R"({"architectures": ["BailingHybridForCausalLM"], "num_hidden_layers": 3,
                          "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                          "mlp_layer_types": ["dense", "dense", "sparse"], "head_dim": 64, "linear_head_dim": 16,
                          "linear_num_heads": 3, "linear_conv_kernel_dim": 2, "num_experts": null,
                          "num_local_experts": 64, "n_group": null, "num_expert_group": 4})")),
            "");
  EXPECT_EQ(read_.full_attention_interval, 2);
  EXPECT_EQ(read_.first_k_dense_replace, 2);
  EXPECT_EQ(read_.linear_value_head_dim, 16);
  EXPECT_EQ(read_.linear_num_key_heads, 3);
  EXPECT_EQ(read_.linear_conv_kernel_dim, 2);
  EXPECT_EQ(read_.n_routed_experts, 64);
  EXPECT_EQ(read_.n_group, 4);
  EXPECT_TRUE(same_again());
  const auto refused = [&](const char* change, const char* part) {
    const std::string found = read(with(change));
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(R"({"num_hidden_layers": 23})", "no whole groups");
  refused(R"({"layer_group_size": 0})", "above 0");
  refused(R"({"kda_lower_bound": 0})", "less than 0");
  refused(R"({"no_kda_lora": false})", "one map each");
  refused(R"({"tie_word_embeddings": true})", "ties no head");
  refused(R"({"gated_attention_proj_granularity_type": "element_wise"})", "one a head");
  refused(R"({"use_mla_nope": true})", "turns");
  refused(R"({"rotary_dim": 32})", "qk_rope_head_dim");
  refused(R"({"rope_scaling": {"type": "yarn", "factor": 2}})", "rotated in part");
  refused(R"({"share_expert_swiglu_limit_list": [0]})", "the first have 0");
  refused(R"({"num_hidden_layers": 4, "share_expert_swiglu_limit_list": [0, 7, 5, 4]})", "then another");
  refused(R"({"num_hidden_layers": 4, "share_expert_swiglu_limit_list": [5, 5, 5, 5]})", "no experts");
  refused(R"({"num_hidden_layers": 4, "expert_swiglu_limit_list": [0, 4, 0, 4]})", "one limit");
  refused(R"({"mlp_layer_types": ["dense"]})", "the others are sparse");
}

TEST_F(LayerKinds, OfGlm53StandBesideBlocksOfKeys) {
  // A released folder's keys, with the sizes of its text model.
  const Json flash =
      Json::parse(R"({"architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next",
    "image_token_id": 154854, "tie_word_embeddings": false, "vision_config": {"depth": 24}, "text_config": {
      "attention_bias": false, "dtype": "bfloat16", "first_k_dense_replace": 3, "hc_eps": 1e-06, "hc_mult": 4,
      "hc_sinkhorn_iters": 20, "head_dim": 0, "hidden_act": "silu", "hidden_size": 4096, "index_head_dim": 128,
      "index_kpool": 4, "index_kpool_always_select_tail": true, "index_kpool_compress": true, "index_n_heads": 32,
      "index_share_for_mtp_iteration": true, "index_topk": 2048, "indexer_rope_interleave": true,
      "intermediate_size": 12288, "kv_lora_rank": 512, "linear_attn_config": {"gate_lower_bound": -5.0,
        "head_dim": 128, "num_heads": 64, "short_conv_kernel_size": 4},
      "max_position_embeddings": 1048576, "mhc": true, "mla_use_nope": true, "model_type": "glm5_next_text",
      "moe_intermediate_size": 2048, "moe_router_dtype": "float32", "n_group": 1, "n_routed_experts": 288,
      "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8,
      "num_hidden_layers": 45, "num_key_value_heads": 64, "num_nextn_predict_layers": 1, "q_lora_rank": 1536,
      "qk_head_dim": 256, "qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "rms_norm_eps": 1e-05,
      "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "swiglu_limit": 10.0, "topk_group": 1,
      "topk_method": "noaux_tc", "v_head_dim": 256, "vocab_size": 154880}})");
  const auto with = [&](const char* change) {
    Json json = flash;
    json["text_config"].merge_patch(Json::parse(change));
    return json;
  };
  EXPECT_EQ(read_text(flash.dump()), "");
  EXPECT_EQ(warnings_.size(), 1);  // of further tokens
  EXPECT_EQ(read_, preset("glm-5.3-flash"));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_text(with(R"({"num_hidden_layers": 4, "layer_types": ["linear_attention",
                               "deepseek_sparse_attention", "linear_attention", "linear_attention"],
                               "mlp_layer_types": ["dense", "dense", "dense", "sparse"],
                               "linear_attn_config": {"kda_layers": [0, 2, 3], "full_attn_layers": [1]}})")
                          .dump()),
            "");
  EXPECT_FALSE(read_.is_recurrent(1));
  EXPECT_TRUE(read_.is_recurrent(3));
  EXPECT_TRUE(same_again());
  // Transformers writes keys of its own in place of the object.
  Json own = with(R"({"num_hidden_layers": 3, "layer_types": ["linear_attention", "indexed_attention",
                      "linear_attention"], "indexer_types": ["full", "full", "full"], "linear_attn_config": null,
                      "linear_head_dim": 16, "linear_num_heads": 2, "linear_conv_kernel_dim": 2})");
  own["text_config"]["linear_lower_bound"] = nullptr;
  EXPECT_EQ(read_text(own.dump()), "");
  EXPECT_EQ(read_.linear_decay_least, 0);
  EXPECT_EQ(read_.linear_key_head_dim, 16);
  EXPECT_TRUE(same_again());
  const auto refused = [&](const char* change, const char* part) {
    const std::string found = read_text(with(change).dump());
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(R"({"linear_attn_config": {"kda_layers": [0]}})", "something else");
  refused(R"({"linear_attn_config": {"gate_lower_bound": 1}})", "less than 0");
  refused(R"({"linear_attn_config": {"heads": 1}})", "linear_attn_config.heads");
  refused(R"({"index_kpool_always_select_tail": false})", "whole block");
  refused(R"({"swiglu_limit": 0})", "above 0");
  refused(R"({"first_k_dense_replace": 2})", "without 'mlp_layer_types'");
  refused(R"({"num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"],
              "indexer_types": ["full", "shared"]})",
          "of its own");
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

TEST_F(LayerKinds, OfGranite4AreInAnyOrder) {
  const auto with = [](const std::string& more) {
    return R"({"architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "attention_multiplier": 0.0078125, "bos_token_id": 100257, "embedding_multiplier": 12, "eos_token_id": 100257,
      "hidden_act": "silu", "hidden_size": 1536, "init_method": "mup", "initializer_range": 0.02,
      "intermediate_size": 512, "logits_scaling": 6, "mamba_chunk_size": 256, "mamba_conv_bias": true,
      "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1,
      "mamba_n_heads": 48, "mamba_proj_bias": false, "max_position_embeddings": 131072,
      "model_type": "granitemoehybrid", "normalization_function": "rmsnorm", "num_attention_heads": 12,
      "num_experts_per_tok": 6, "num_key_value_heads": 4, "num_local_experts": 64, "output_router_logits": false,
      "pad_token_id": 100256, "position_embedding_type": "nope", "residual_multiplier": 0.22, "rms_norm_eps": 1e-05,
      "rope_scaling": null, "rope_theta": 10000, "router_aux_loss_coef": 0.01, "shared_intermediate_size": 1024,
      "tie_word_embeddings": true, "vocab_size": 100352, )" +
           more + "}";
  };
  std::string words;
  for (int l = 0; l < 40; ++l)
    words += fmt::format("{}\"{}\"", l > 0 ? ", " : "", l % 10 == 5 ? "attention" : "mamba");
  EXPECT_EQ(read_text(with(R"("num_hidden_layers": 40, "layer_types": [)" + words + "]")), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("granite-4.0-h-tiny"));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_.blocks_of(5), "*E");
  EXPECT_EQ(read_.blocks_of(6), "ME");
  EXPECT_EQ(read_text(with(R"("num_hidden_layers": 3, "num_local_experts": 0, "mamba_expand": 2,
    "mamba_d_head": "auto",
    "layers_block_type": ["full_attention", "mamba", "linear_attention"], "time_step_limit": [0.5, 0.9])")),
            "");
  EXPECT_FALSE(read_.has_experts());
  EXPECT_EQ(read_.intermediate_size, 1024);
  EXPECT_EQ(read_.layer_pattern, "*MM");
  EXPECT_EQ(read_.linear_step_most, 0.9);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_text(with(R"("num_hidden_layers": 2)")), "");
  EXPECT_EQ(read_.blocks_of(0) + read_.blocks_of(1), "MEME");
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_text(with(R"("num_hidden_layers": 1, "layer_types": ["attention"])")), "");
  EXPECT_FALSE(read_.recurs());
  EXPECT_TRUE(same_again());
  const auto refused = [&](const std::string& more, const char* part) {
    const std::string found = read_text(with(more));
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(R"("num_hidden_layers": 1, "layer_types": ["conv"])", "'linear_attention' or 'full_attention'");
  refused(R"("num_hidden_layers": 1, "mamba_d_head": 32)", "'mamba_n_heads' × 'mamba_d_head' is 1536");
  refused(R"("num_hidden_layers": 1, "mamba_conv_bias": false)", "the convolution has a bias");
  refused(R"("num_hidden_layers": 1, "position_embedding_type": "alibi")", "accepted: 'rope', 'nope' or null");
  refused(R"("num_hidden_layers": 1, "shared_intermediate_size": 0)", "shared_intermediate_size");
}

TEST_F(LayerKinds, OfLfm2AreNumbersOrWords) {
  const std::string released = R"({"architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": true,
    "block_dim": 2048, "block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0,
    "block_multiple_of": 256, "block_norm_eps": 1e-05, "block_out_init_scale": 1.0, "block_use_swiglu": true,
    "block_use_xavier_init": true, "bos_token_id": 1, "conv_L_cache": 3, "conv_bias": false, "conv_dim": 2048,
    "conv_dim_out": 2048, "conv_use_xavier_init": true, "eos_token_id": 7, "full_attn_idxs": [2, 5, 8, 10, 12, 14],
    "hidden_size": 2048, "initializer_range": 0.02, "max_position_embeddings": 128000, "model_type": "lfm2",
    "norm_eps": 1e-05, "num_attention_heads": 32, "num_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pad_token_id": 0, "rope_theta": 1000000.0, "theta": 1000000.0,
    "tie_embedding": true, "use_cache": true, "use_pos_enc": true, "vocab_size": 65536})";
  EXPECT_EQ(read_text(released), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("lfm2-1.2b"));
  EXPECT_TRUE(same_again());
  const auto with = [&](const char* change) {
    Json json = Json::parse(released);
    json.merge_patch(Json::parse(change));
    return read_text(json.dump());
  };
  EXPECT_EQ(
      with(R"({"block_auto_adjust_ff_dim": false, "conv_bias": true, "layer_types": ["conv", "full_attention"],
                     "num_hidden_layers": 2})"),
      "");
  EXPECT_EQ(read_.intermediate_size, 12288);
  EXPECT_TRUE(read_.linear_bias);
  EXPECT_EQ(read_.full_attention_interval, 2);
  EXPECT_TRUE(same_again());
  EXPECT_NE(with(R"({"full_attn_idxs": [16]})").find("numbers of 16 layers"), std::string::npos);
  EXPECT_NE(with(R"({"block_multiple_of": 0})").find("above 0 are expected"), std::string::npos);
  for (const char* name : {"lfm2-8b-a1b", "olmo-hybrid-7b"}) {
    read_ = preset(name);
    EXPECT_TRUE(same_again()) << name;
  }
}

TEST_F(LayerKinds, OfFalconH1AreBothAtOnce) {
  const std::string released = R"({"architectures": ["FalconH1ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attention_in_multiplier": 1.0, "attention_out_multiplier": 0.9375,
    "attn_layer_indices": null, "bos_token_id": 1, "embedding_multiplier": 5.656854249492381, "eos_token_id": 11,
    "head_dim": 64, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 2048,
    "key_multiplier": 0.390625, "lm_head_multiplier": 0.0390625, "mamba_chunk_size": 128, "mamba_conv_bias": true,
    "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_ssm": 1536, "mamba_d_state": 128, "mamba_expand": 2,
    "mamba_n_groups": 1, "mamba_n_heads": 24, "mamba_norm_before_gate": false, "mamba_proj_bias": false,
    "mamba_rms_norm": false, "mamba_use_mlp": true, "max_position_embeddings": 16384, "mlp_bias": false,
    "mlp_expansion_factor": 8, "mlp_multipliers": [0.8838834764831844, 0.5859375], "model_type": "falcon_h1",
    "num_attention_heads": 8, "num_hidden_layers": 36, "num_key_value_heads": 2, "num_logits_to_keep": 1,
    "pad_token_id": 0, "projectors_bias": false, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 100000000000.0, "ssm_in_multiplier": 1.25,
    "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
    "ssm_out_multiplier": 0.23570226039551587, "tie_word_embeddings": false, "time_step_floor": 0.0001,
    "time_step_max": 0.1, "time_step_min": 0.001, "time_step_rank": "auto", "vocab_size": 32784})";
  EXPECT_EQ(read_text(released), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("falcon-h1-0.5b"));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(family_of(read_).model_type, "falcon_h1");
  EXPECT_EQ(read_.blocks_of(35), "*M-");
  EXPECT_EQ(read_.blocks_of(36), "*E");  // of a further token, which this model has none of
  EXPECT_EQ(why_unpublished(read_), "");
  const auto with = [&](const char* change) {
    Json json = Json::parse(released);
    json.merge_patch(Json::parse(change));
    return read_text(json.dump());
  };
  EXPECT_EQ(
      with(
          R"({"num_hidden_layers": 2, "layer_types": ["hybrid", "hybrid"], "mamba_rms_norm": true, "mamba_n_groups": 2})"),
      "");
  EXPECT_EQ(read_.linear_norm, model::RecurrentNorm::gated);
  EXPECT_TRUE(same_again());
  Json other = Json::parse(released);
  for (const char* absent : {"mamba_d_ssm", "mamba_d_head", "mlp_multipliers", "ssm_multipliers"})
    other.erase(absent);
  other["mamba_rms_norm"] = other["mamba_norm_before_gate"] = true;
  other["mamba_n_heads"] = 32;
  EXPECT_EQ(read_text(other.dump()), "");
  EXPECT_EQ(read_.linear_values_width(), 1024);
  EXPECT_EQ(read_.linear_norm, model::RecurrentNorm::ungated);
  EXPECT_EQ(read_.linear_part_multipliers, "");
  EXPECT_EQ(read_.mlp_beta_factor, 1);
  EXPECT_TRUE(same_again());
  other["mamba_d_ssm"] = nullptr;
  EXPECT_EQ(read_text(other.dump()), "");
  EXPECT_EQ(read_.linear_values_width(), 2048);
  const auto refused = [&](const char* change, const char* part) {
    const std::string found = with(change);
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(R"({"attn_layer_indices": [1, 2]})", "'attn_layer_indices' is [1,2]: each layer has attention");
  refused(R"({"layer_types": ["mamba"]})", "each layer is 'hybrid'");
  refused(R"({"mamba_use_mlp": false})", "each layer has an MLP");
  refused(R"({"projectors_bias": true})", "'projectors_bias' true: both maps of Mamba-2 have a bias, or none");
  refused(R"({"mamba_d_ssm": 1500})", "'mamba_n_heads' × 'mamba_d_head' is 1536, and 'mamba_d_ssm' 1500");
  refused(R"({"ssm_multipliers": [1, 2]})", "a list of 5 numbers is expected");
  refused(R"({"mlp_multipliers": 2})", "a list of 2 numbers is expected");
  refused(R"({"ssm_multipliers": [1, 2, 3, 4, 0]})", "model.linear_part_multipliers has 0, must be from");
  refused(R"({"lm_head_multiplier": 0})", "'lm_head_multiplier' is 0, a number above 0");
  refused(R"({"key_multiplier": -1})", "model.key_multiplier is -1, must be from");
  refused(R"({"heddle": {"full_attention_interval": 2}})",
          "model.full_attention_interval = 0: each layer has both");
}

TEST_F(LayerKinds, OfBambaAreNumbers) {
  const std::string released = R"({"architectures": ["BambaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "attn_layer_indices": [9, 18, 27], "attn_rotary_emb": 64, "bos_token_id": 128000,
    "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 14336, "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4,
    "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
    "mamba_proj_bias": false, "max_position_embeddings": 262144, "mlp_bias": false, "model_type": "bamba",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_logits_to_keep": 1,
    "pad_token_id": 0, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": false,
    "vocab_size": 128256})";
  EXPECT_EQ(read_text(released), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("bamba-9b"));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(family_of(read_).model_type, "bamba");
  EXPECT_EQ(why_unpublished(read_), "");
  const auto with = [&](const char* change) {
    Json json = Json::parse(released);
    json.update(Json::parse(change));
    return read_text(json.dump());
  };
  EXPECT_EQ(with(R"({"attn_layer_indices": null, "num_key_value_heads": null, "z_loss_coefficient": 0.001})"), "");
  EXPECT_EQ(warnings_.size(), 1u);
  EXPECT_FALSE(read_.has_kind(model::LayerKind::attention));
  EXPECT_EQ(read_.blocks_of(9), "M-");
  EXPECT_EQ(read_.num_key_value_heads, 32);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(with(R"({"num_hidden_layers": 2, "attn_layer_indices": [0, 1]})"), "");
  EXPECT_FALSE(read_.recurs());
  EXPECT_EQ(family_of(read_).model_type, "phi3");
  EXPECT_TRUE(same_again());
  const auto refused = [&](const char* change, const char* part) {
    const std::string found = with(change);
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(R"({"attn_layer_indices": [32]})", "'attn_layer_indices' is [32]: numbers of 32 layers");
  refused(R"({"attn_rotary_emb": 128})", "the first half of each head turns");
  refused(R"({"partial_rotary_factor": 1})", "the first half of each head turns");
  refused(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}})",
          "the first half of each head turns");
  refused(R"({"mamba_conv_bias": false})", "the convolution has a bias");
}

TEST_F(LayerKinds, OfLfm3AreThree) {
  const std::string released = R"({"architectures": ["Lfm3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 124894, "conv_L_cache": 7, "conv_bias": false, "eos_token_id": 124900,
    "head_dim": 128, "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 7680,
    "max_position_embeddings": 128000, "model_type": "lfm3", "norm_eps": 1e-05, "num_attention_heads": 16,
    "num_hidden_layers": 24, "num_key_value_heads": 4, "pad_token_id": 124893, "rope_parameters": {
      "full_attention": {"partial_rotary_factor": 0.5, "rope_theta": 1000000.0, "rope_type": "proportional"},
      "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
    "sliding_window": 256, "tie_word_embeddings": true, "use_attention_gate": true, "use_sandwich_norm": true,
    "vocab_size": 128000})";
  EXPECT_EQ(read_text(released), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("lfm3-1.7b"));
  EXPECT_EQ(read_.layer_pattern, "MM*MWM*MWM*MWM*MWM*MWM*M");
  EXPECT_EQ(read_.window_of(0), 0);
  EXPECT_EQ(read_.window_of(2), 0);
  EXPECT_EQ(read_.window_of(4), 256);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(family_of(read_).model_type, "lfm3");
  EXPECT_EQ(why_unpublished(read_), "");
  const auto with = [&](const char* change) {
    Json json = Json::parse(released);
    json.update(Json::parse(change));
    return read_text(json.dump());
  };
  EXPECT_EQ(with(R"({"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "use_attention_gate": false,
                     "use_sandwich_norm": false, "rope_parameters": null, "sliding_window": null})"),
            "");
  EXPECT_EQ(read_.sliding_window, 0);
  EXPECT_EQ(read_.turning_pairs_factor, 0.5);
  EXPECT_EQ(read_.norm_places, model::NormPlaces::before);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(family_of(read_).model_type, "lfm3");
  const auto refused = [&](const char* change, const char* part) {
    const std::string found = with(change);
    EXPECT_NE(found.find(part), std::string::npos) << part << ": " << found;
  };
  refused(R"({"num_hidden_layers": 1, "layer_types": ["sliding_attention"]})", "one layer or more is 'conv'");
  refused(R"({"layer_types": ["conv"]})", "each of 24 layers is 'conv', 'full_attention' or 'sliding_attention'");
  refused(R"({"sliding_window": null})", "'sliding_window' is null, a number of tokens is expected");
  refused(R"({"rope_parameters": {"sliding_attention": {"rope_type": "proportional"}}})",
          "'rope_parameters.sliding_attention' is of the type 'proportional', accepted: 'default'");
  refused(R"({"rope_theta": 10000})", "rotary keys stand by kind of layer in 'rope_parameters'");
}

TEST_F(LayerKinds, OfOlmoHybridHaveNormsInTwoPlaces) {
  const std::string released = R"({"architectures": ["OlmoHybridForCausalLM"], "model_type": "olmo_hybrid",
    "vocab_size": 100352, "hidden_size": 3840, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 30, "num_key_value_heads": 30, "hidden_act": "silu", "max_position_embeddings": 65536,
    "initializer_range": 0.02, "rms_norm_eps": 1e-06, "tie_word_embeddings": false, "rope_parameters": null,
    "rope_theta": null, "attention_bias": false, "attention_dropout": 0.0, "linear_num_key_heads": 30,
    "linear_num_value_heads": 30, "linear_key_head_dim": 96, "linear_value_head_dim": 192,
    "linear_conv_kernel_dim": 4, "linear_allow_neg_eigval": true})";
  EXPECT_EQ(read_text(released), "");
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
  EXPECT_EQ(read_, preset("olmo-hybrid-7b"));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_.norm_places_of(0), model::NormPlaces::before);
  EXPECT_EQ(read_.norm_places_of(3), model::NormPlaces::after);
  const auto with = [&](const char* change) {
    Json json = Json::parse(released);
    json.merge_patch(Json::parse(change));
    if (json.value("rope_parameters", Json()).is_object()) json.erase("rope_theta");
    return read_text(json.dump());
  };
  Json inside = Json::parse(released);
  inside.erase("rope_theta");
  inside["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", nullptr}};
  EXPECT_EQ(read_text(inside.dump()), "");
  EXPECT_EQ(read_.positions, model::Positions::none);
  EXPECT_EQ(with(R"({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 5e5},
                     "linear_allow_neg_eigval": false})"),
            "");
  EXPECT_TRUE(read_.turns());
  EXPECT_EQ(read_.rope_theta, 5e5);
  EXPECT_FALSE(read_.linear_double_beta);
  EXPECT_TRUE(same_again());
}

}  // namespace
}  // namespace heddle::config
