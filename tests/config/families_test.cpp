// Families of published models and the table of keys: every key survives TOML and JSON, by whatever family it goes;
// what a family's files say and what is refused.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "heddle/base/error.h"
#include "heddle/config/families/family.h"
#include "heddle/config/model_json.h"
#include "heddle/config/run_config.h"
#include "heddle/model/shapes/shape_presets.h"
#include "tests/support/released_config.h"

namespace heddle::config {
namespace {

using model::ModelConfig;

const std::string kFixtures = std::string(HEDDLE_SOURCE_DIR) + "/tests/fixtures/";

std::vector<ModelConfig> models() {
  std::vector<ModelConfig> all;
  for (const std::string& name : preset_names()) all.push_back(preset(name));
  for (const char* name :
       {"grouped", "yarn", "qwen3", "qwen3_moe", "llama", "qwen2", "mixtral", "glm4_moe", "gpt_oss"}) {
    all.push_back(read_huggingface_config(kFixtures + name + "/config.json"));
  }
  return all;
}

// The same model with another value of a key; nullopt where that is no model.
std::optional<ModelConfig> with_another(const ModelConfig& model, const model::Key& key) {
  model::KeyValue value = key.get(model);
  if (auto* flag = std::get_if<bool>(&value)) *flag = !*flag;
  if (auto* size = std::get_if<int64_t>(&value)) *size = *size > key.least + 1 ? *size / 2 / 2 * 2 : *size * 2 + 2;
  if (auto* number = std::get_if<double>(&value)) *number = *number / 2 + 0.25;
  if (auto* word = std::get_if<std::string>(&value); word != nullptr && !key.words.empty()) {
    *word = key.words[*word == key.words[0] ? 1 : 0];
  } else if (word != nullptr) {  // a letter a layer
    std::reverse(word->begin(), word->end());
    if (word->empty()) *word = std::string(static_cast<size_t>(model.num_hidden_layers), '*');
  }
  ModelConfig other = model;
  key.set(other, value);
  model::reset_foreign_keys(other);
  try {
    model::validate(other);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  return other;
}

TEST(ModelKeys, SurviveTomlAndJson) {
  for (const ModelConfig& model : models()) {
    for (const model::Key& key : model::keys()) {
      if (!model::has_key(model, key)) continue;
      const std::optional<ModelConfig> other = with_another(model, key);
      if (!other) continue;
      EXPECT_EQ(model_config_from_json(model_config_to_json(*other), "x"), *other) << key.name;
      RunConfig run;
      run.model = *other;
      run.train.sequence_length = 1;
      run.data.vocabulary = 0;
      EXPECT_EQ(parse_run_config(toml_of(run), "written.toml").model, *other) << key.name;
    }
  }
}

// What makes parameters of another shape or meaning is a difference, what only training reads is none.
TEST(ModelKeys, DifferWhereParametersDo) {
  const ModelConfig model = read_huggingface_config(kFixtures + "qwen3_moe/config.json");
  EXPECT_EQ(difference(model, model), "");
  for (const model::Key& key : model::keys()) {
    const std::optional<ModelConfig> other = model::has_key(model, key) ? with_another(model, key) : std::nullopt;
    if (!other) continue;
    EXPECT_EQ(difference(model, *other).empty(), key.trains) << key.name << ": " << difference(model, *other);
  }
}

TEST(ModelKeys, BoundsAreThoseOfTheTable) {
  for (const model::Key& key : model::keys()) {
    ModelConfig model;
    const bool recurrent = key.of == model::Key::Of::recurrent || key.of == model::Key::Of::stateful;
    const bool shared = key.of == model::Key::Of::grouped_compressed;  // with compressed attention
    if (key.of == model::Key::Of::compressed) model.attention = ModelConfig::Attention::compressed;
    if (key.of == model::Key::Of::grouped || shared || recurrent) model.attention = ModelConfig::Attention::grouped;
    if (recurrent) model.recurrence = model::Recurrence::gated_delta;
    if (key.of == model::Key::Of::streams || key.of == model::Key::Of::ngrams) model.hyper_connections = 4;
    if (key.of == model::Key::Of::ngrams) {
      model.hyper_connections_kind = model::HyperConnection::gated;
      model.ngram_layers = "1";
    }
    if (model::is_of_scaling(key)) model.rope_scaling.emplace();
    if (key.of == model::Key::Of::llama3) model.rope_scaling->type = model::RopeType::llama3;
    if (key.of == model::Key::Of::longrope) model.rope_scaling->type = model::RopeType::longrope;
    if (key.kind == model::Key::Kind::integer) {
      key.set(model, static_cast<int64_t>(key.most) + 1);
    } else if (key.kind == model::Key::Kind::number) {
      key.set(model, key.most > 0 ? key.most * 2 : 1.0);
    } else {
      continue;
    }
    if (key.of == model::Key::Of::experts && !model.has_experts())
      continue;  // so many dense layers that none is left
    EXPECT_THROW(model::validate(model), ConfigError) << key.name;
  }
}

class Qwen3 : public ReleasedConfig {
 protected:
  std::string refusal(const std::string& change, const char* fixture = "qwen3_moe") {
    Json json = Json::parse(std::ifstream(kFixtures + fixture + "/config.json"));
    json.merge_patch(Json::parse(change));
    return message(json);
  }
  void expect(const std::string& change, const char* part) {
    EXPECT_NE(refusal(change).find(part), std::string::npos) << change << ": " << refusal(change);
  }
};

TEST_F(Qwen3, WindowsAreRead) {
  const auto windows = [&](const char* fixture, const std::string& change) {
    EXPECT_EQ(refusal(change, fixture), "") << change;
    std::vector<int64_t> of;
    for (int64_t l = 0; l < read_.num_hidden_layers; ++l) of.push_back(read_.window_of(l));
    const ModelConfig again = model_config_from_json(model_config_to_json(read_), "x");
    EXPECT_EQ(again, read_) << change;
    return of;
  };
  using Windows = std::vector<int64_t>;
  EXPECT_EQ(windows("mixtral", R"({"num_hidden_layers": 2, "sliding_window": 7})"), (Windows{7, 7}));
  EXPECT_EQ(windows("mixtral", R"({"num_hidden_layers": 2, "sliding_window": null})"), (Windows{0, 0}));
  const std::string four = R"({"num_hidden_layers": 4, "sliding_window": 5, "layer_types": null, )";
  EXPECT_EQ(windows("qwen2", four + R"("use_sliding_window": false, "max_window_layers": 1})"),
            (Windows{0, 0, 0, 0}));
  EXPECT_EQ(windows("qwen2", four + R"("use_sliding_window": true, "max_window_layers": 1})"),
            (Windows{0, 5, 5, 5}));
  EXPECT_EQ(windows("qwen2", four + R"("use_sliding_window": true, "max_window_layers": null})"),
            (Windows{0, 0, 0, 0}));  // 28
  const std::string types = R"({"num_hidden_layers": 3, "sliding_window": 5, "use_sliding_window": true,
    "max_window_layers": null, "layer_types": )";
  EXPECT_EQ(windows("qwen2", types + R"(["full_attention", "full_attention", "sliding_attention"]})"),
            (Windows{0, 0, 5}));
  EXPECT_EQ(windows("qwen2", types + R"(["sliding_attention", "full_attention", "sliding_attention"]})"),
            (Windows{5, 0, 5}));
  EXPECT_EQ(windows("qwen2", types + R"(["sliding_attention", "full_attention", "full_attention"]})"),
            (Windows{5, 0, 0}));
  EXPECT_NE(refusal(types + R"(["chunked_attention", "full_attention", "full_attention"]})", "qwen2")
                .find("'layer_types' is"),
            std::string::npos);
}

TEST_F(Qwen3, IsRead) {
  EXPECT_EQ(refusal("{}"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(read_.attention, ModelConfig::Attention::grouped);
  EXPECT_EQ(read_.num_key_value_heads, 2);
  EXPECT_EQ(read_.first_k_dense_replace, 1);
  EXPECT_TRUE(read_.qk_norm);
  EXPECT_FALSE(read_.sigmoid_scores);
  EXPECT_EQ(refusal("{}", "qwen3"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_FALSE(read_.has_experts());
  EXPECT_TRUE(read_.tie_word_embeddings);
  EXPECT_EQ(refusal(R"({"num_experts": null, "num_local_experts": 6, "output_router_logits": true})"), "");
  EXPECT_EQ(read_.n_routed_experts, 6);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("router_aux_loss_coef"), std::string::npos);
}

TEST_F(Qwen3, RefusesWhatItComputesOtherwise) {
  expect(R"({"mlp_only_layers": [99]})", "layers are expected");
  expect(R"({"mlp_only_layers": 1})", "layers are expected");
  expect(R"({"decoder_sparse_step": 0})", "'decoder_sparse_step' is 0");
  expect(R"({"mlp_bias": true})", "biases in MLPs");
  expect(R"({"num_key_value_heads": 4})", "not a multiple of model.num_key_value_heads");
  expect(R"({"head_dim": 7})", "must be even");
  expect(R"({"num_local_experts": 9})", "they are one key");
  expect(R"({"model_type": "qwen3"})", R"('architectures' is ["Qwen3MoeForCausalLM"])");
}

TEST(Published, IsWhatAFamilyHas) {
  for (const ModelConfig& model : models()) EXPECT_EQ(why_unpublished(model), "");
  ModelConfig model = read_huggingface_config(kFixtures + "qwen3_moe/config.json");
  model.z_loss_weight = 1;
  EXPECT_EQ(why_unpublished(model), "");
  model.n_shared_experts = 1;
  EXPECT_EQ(why_unpublished(model), "model.n_shared_experts is 1, which Qwen3MoeForCausalLM does not have");
  EXPECT_EQ(model_config_from_json(model_config_to_json(model), "x"), model);
  model.first_k_dense_replace = 9;  // without layers that have experts it is a dense model, whatever these would be
  EXPECT_EQ(why_unpublished(model), "");
  EXPECT_EQ(model_config_from_json(model_config_to_json(model), "x"), model);
}

// As openai-community/gpt2 has it, keys of tasks and generation included.
constexpr const char* kGpt2 = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
  "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257})";

TEST_F(Qwen3, Gpt2IsRead) {
  const auto read = [&](const std::string& change) {
    Json json = Json::parse(kGpt2);
    json.merge_patch(Json::parse(change));
    std::ofstream(folder_ / "config.json") << json.dump();
    warnings_.clear();
    try {
      read_ = read_huggingface_config(folder_ / "config.json", &warnings_);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(read("{}"), "");
  EXPECT_EQ(read_, preset("gpt2"));
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(read_.attention_dropout, 0.1);
  EXPECT_EQ(read(R"({"attn_pdrop": 0, "activation_function": "gelu", "n_inner": 100})"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(read_.activation, model::Activation::gelu);
  EXPECT_EQ(read_.intermediate_size, 100);
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
  for (const auto& [change, part] : {std::pair{R"({"activation_function": "relu"})", "'activation_function' is"},
                                     {R"({"scale_attn_by_inverse_layer_idx": true})", "scaled by their layer"},
                                     {R"({"add_cross_attention": true})", "another model"},
                                     {R"({"n_head": 7})", "not a multiple of 'n_head'"}}) {
    EXPECT_NE(read(change).find(part), std::string::npos) << read(change);
  }
}

class Grouped : public Qwen3 {
 protected:
  void refused(const char* fixture, const std::string& change, const char* part) {
    EXPECT_NE(refusal(change, fixture).find(part), std::string::npos) << change << ": " << refusal(change, fixture);
  }
};

TEST_F(Grouped, FamiliesAreRead) {
  EXPECT_EQ(refusal("{}", "llama"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_FALSE(read_.qk_norm);
  EXPECT_EQ(read_.attention_bias, model::AttentionBias::all);
  EXPECT_TRUE(read_.mlp_bias);
  EXPECT_EQ(read_.rope_scaling->type, model::RopeType::llama3);
  EXPECT_EQ(refusal(R"({"head_dim": null, "num_key_value_heads": null})", "llama"), "");
  EXPECT_EQ(read_.head_dim, read_.hidden_size / read_.num_attention_heads);
  EXPECT_EQ(read_.num_key_value_heads, read_.num_attention_heads);
  EXPECT_EQ(refusal("{}", "qwen2"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(read_.attention_bias, model::AttentionBias::qkv);
  EXPECT_EQ(refusal("{}", "mixtral"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(read_.moe_intermediate_size, read_.intermediate_size);
  EXPECT_TRUE(read_.norm_topk_prob);
  EXPECT_EQ(refusal("{}", "glm4_moe"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(read_.rotary_width() * 2, read_.head_dim);
  EXPECT_TRUE(read_.sigmoid_scores);
  EXPECT_EQ(refusal(R"({"partial_rotary_factor": 0.25, "rope_parameters": null})", "glm4_moe"), "");
  EXPECT_EQ(read_.partial_rotary_factor, 0.25);
}

TEST_F(Grouped, FamiliesRefuseWhatTheyComputeOtherwise) {
  refused("llama", R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2}})", "'yarn', 'linear', 'llama3'");
  refused("llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 2, "high_freq_factor": null}})",
          "'rope_scaling.high_freq_factor' is missing");
  refused("llama", R"({"rope_scaling": {"rope_type": "llama3", "factor": 2, "beta_fast": 1}})",
          "'rope_scaling.beta_fast'");
  refused("llama",
          R"({"rope_scaling": {"rope_type": "llama3", "factor": 2, "low_freq_factor": 5, "high_freq_factor": 4}})",
          "must be at least model.rope_scaling.low_freq_factor");
  refused("llama", R"({"partial_rotary_factor": 0.5})", "rotated in part");
  refused("llama",
          R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}, "rope_scaling": null})",
          "rotated in part");
  refused("qwen2", R"({"attention_bias": true})", "biases in attention");
  refused("mixtral", R"({"num_experts": 3})", "they are one key");
  refused("glm4_moe", R"({"partial_rotary_factor": 0.1, "rope_parameters": null})", "it must leave two elements");
}

TEST(Published, WordsOfOursAreChecked) {
  ModelConfig model = read_huggingface_config(kFixtures + "qwen3/config.json");
  model.attention_bias = model::AttentionBias::qkv;  // of normed heads no family has that
  auto json = model_config_to_json(model);
  EXPECT_EQ(json["heddle"]["attention_bias"], "qkv");
  EXPECT_EQ(model_config_from_json(json, "x"), model);
  json["heddle"]["attention_bias"] = "some";
  try {
    model_config_from_json(json, "x");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "x: 'heddle.attention_bias' is 'some', accepted: none, qkv, all");
  }
}

// A model is written as the family that it is of.
TEST(Published, FamiliesKeepTheirModels) {
  for (const Family& family : families()) {
    const std::set<std::string> written_as_others{"kimi_k2",    "glm4_moe_lite", "seed_oss", "hy_v3",     "phi3",
                                                  "solar_open", "sarvam_moe",    "youtu",    "sarvam_mla"};
    if (written_as_others.contains(family.model_type)) continue;
    for (const Preset& preset : family.presets) {
      EXPECT_EQ(family_of(preset.model).model_type, family.model_type) << preset.name;
    }
  }
}

TEST(Published, TensorsAreSpeltAsTheFamilyDoes) {
  const ModelConfig model = preset("mixtral-8x7b");
  const auto spelt = [&](const char* name) { return name_in(family_of(model), name); };
  EXPECT_EQ(spelt("model.layers.3.mlp.gate.weight"), "model.layers.3.block_sparse_moe.gate.weight");
  EXPECT_EQ(spelt("model.layers.3.mlp.experts.5.up_proj.weight"),
            "model.layers.3.block_sparse_moe.experts.5.w3.weight");
  EXPECT_EQ(spelt("model.layers.3.mlp.experts.5.down_proj.weight"),
            "model.layers.3.block_sparse_moe.experts.5.w2.weight");
  EXPECT_EQ(spelt("model.layers.3.self_attn.q_proj.weight"), "model.layers.3.self_attn.q_proj.weight");
  const auto places = [](const char* name) { return places_of(name, {4, 6}, 8).size(); };
  EXPECT_EQ(places("model.norm.weight"), 10u);
  EXPECT_EQ(places("model.layers.3.mlp.gate.weight"), 22u);
  EXPECT_EQ(places("model.layers.3.mlp.experts.5.up_proj.weight"), 24u);
}

// What a published file says in words of its own. Active parameters are those of the announcements, within 5 %.
TEST_F(Grouped, NewerFamiliesAreRead) {
  const auto read = [&](const std::string& json) {
    std::ofstream(folder_ / "config.json") << json;
    warnings_.clear();
    try {
      read_ = read_huggingface_config(folder_ / "config.json", &warnings_);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto same_again = [&] { return model_config_from_json(model_config_to_json(read_), "x") == read_; };
  EXPECT_EQ(read(R"({"architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "vocab_size": 200064,
    "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
    "num_key_value_heads": 8, "head_dim": 128, "rotary_dim": 64, "rope_theta": 5000000, "hidden_act": "silu",
    "max_position_embeddings": 196608, "num_local_experts": 256, "num_experts_per_tok": 8, "rms_norm_eps": 1e-06,
    "scoring_func": "sigmoid", "use_qk_norm": true, "qk_norm_type": "per_layer", "use_routing_bias": true})"),
            "");
  EXPECT_EQ(read_, preset("minimax-m2"));
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_TRUE(same_again());
  const std::string gemma = R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
    "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32768, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "sliding_window": 512,
    "final_logit_softcapping": null, "attn_logit_softcapping": null, "cache_implementation": "hybrid", )";
  EXPECT_EQ(read(gemma + R"("rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window_pattern": 6})"),
            "");
  EXPECT_EQ(read_, preset("gemma-3-1b"));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read(gemma + R"("rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0,
    "rope_theta": 1000000}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000}}})"),
            "");
  EXPECT_EQ(read_.rope_scaling->factor, 8);
  EXPECT_FALSE(read_.with_rotation_of_windows().rope_scaling.has_value());
  EXPECT_TRUE(same_again());
  EXPECT_NE(read(gemma + R"("rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2}}})")
                .find("only 'default' is built"),
            std::string::npos);
  EXPECT_NE(read(gemma + R"("use_bidirectional_attention": true})").find("both directions"), std::string::npos);
  // Lists of numbers, the window's size without the query's own token, names of the released file.
  EXPECT_EQ(
      read(R"({"architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "vocab_size": 152576,
    "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 7, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "max_position_embeddings": 131072,
    "partial_rotary_factor": 0.334, "rope_theta": 5000000, "swa_rope_theta": 10000, "sliding_window_size": 128,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1], "moe_layer_freq": [0, 1, 1, 1, 1, 1, 1], "n_routed_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "swa_num_key_value_heads": 8, "n_shared_experts": null,
    "add_swa_attention_sink_bias": true, "add_full_attention_sink_bias": false, "attention_value_scale": 0.707})"),
      "");
  ModelConfig flash = preset("mimo-v2-flash");
  flash.num_hidden_layers = 7;
  EXPECT_EQ(read_, flash);
  EXPECT_EQ(read_.window_of(1), 129);
  EXPECT_EQ(read_.window_of(5), 0);
  EXPECT_EQ(read_.kv_heads_of(1), 8);
  EXPECT_EQ(read_.rotary_width(), 64);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read(R"({"architectures": ["HunYuanMoEV1ForCausalLM"], "model_type": "hunyuan_v1_moe",
    "vocab_size": 128167, "hidden_size": 4096, "intermediate_size": 3072, "num_hidden_layers": 4,
    "num_attention_heads": 32, "num_key_value_heads": 8, "attention_head_dim": 128, "num_experts": 64,
    "max_position_embeddings": 32768, "moe_topk": 8,
    "moe_intermediate_size": [3072, 3072, 3072, 3072], "num_shared_expert": 1, "tie_word_embeddings": true, "rope_theta": 10000.0, "rms_norm_eps": 1e-05,
    "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "dynamic"}})"),
            "");
  ModelConfig a13b = preset("hunyuan-a13b");
  a13b.num_hidden_layers = 4;
  EXPECT_EQ(read_, a13b);
  EXPECT_NE(
      read(R"({"architectures": ["HunYuanMoEV1ForCausalLM"], "moe_topk": [8, 4]})").find("differs between layers"),
      std::string::npos);
  // Ling-1T says in elements what the smaller ones say as a part; either name of the type is read.
  for (const char* type : {"bailing_moe", "bailing_moe_v2"}) {
    for (const char* part : {R"("partial_rotary_factor": 0.5)", R"("rotary_dim": 64)"}) {
      EXPECT_EQ(read(fmt::format(R"({{"architectures": ["BailingMoeV2ForCausalLM"], "model_type": "{}", {},
        "vocab_size": 157184, "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 20,
        "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 32768,
        "first_k_dense_replace": 1, "num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1,
        "moe_intermediate_size": 512, "moe_shared_expert_intermediate_size": 512, "n_group": 8, "topk_group": 4,
        "routed_scaling_factor": 2.5, "rope_theta": 600000, "rope_scaling": null, "rms_norm_eps": 1e-06,
        "score_function": "sigmoid", "moe_router_enable_expert_bias": true, "norm_topk_prob": true,
        "use_qk_norm": true, "use_qkv_bias": false, "use_bias": false, "use_rmsnorm": true, "router_dtype": "fp32",
        "embedding_dropout": 0.0, "output_dropout": 0.0, "num_nextn_predict_layers": 0}})",
                                 type, part)),
                "");
      EXPECT_EQ(read_, preset("ling-mini-2.0"));
      EXPECT_EQ(warnings_, std::vector<std::string>{});
      EXPECT_TRUE(same_again());
    }
  }
  // Lists of a value a layer, with those of three layers of further tokens behind them.
  const auto by_layer = [](const std::string& full, const std::string& window) {
    std::string list;
    for (int l = 0; l < 48; ++l) list += (l == 0 ? "" : ", ") + (l % 4 == 0 ? full : window);
    return "[" + list + "]";
  };
  const auto from = [](int first, int end, const char* limit) {
    std::string list;
    for (int l = 0; l < 48; ++l)
      list += fmt::format("{}{}", l == 0 ? "" : ", ", l >= first && l < end ? limit : "0.0");
    return "[" + list + "]";
  };
  std::string sparse = "3";
  for (int l = 4; l < 45; ++l) sparse += fmt::format(",{}", l);
  const std::string step = fmt::format(
      R"({{"architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 4096,
    "rope_scaling": {{"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 131072,
    "low_freq_factor": 1.0, "high_freq_factor": 32.0}}, "yarn_only_types": ["full_attention"],
    "intermediate_size": 11264, "num_hidden_layers": 45, "max_seq_len": 262144, "vocab_size": 128896,
    "use_qk_norm": true, "moe_layers_enum": "{}", "num_attention_heads": 64, "num_attention_groups": 8,
    "head_dim": 128, "use_moe": true, "moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280,
    "share_expert_dim": 1280, "moe_layer_offset": 0, "moe_every_n_layer": 1, "norm_expert_weight": true,
    "moe_router_activation": "sigmoid", "moe_router_scaling_factor": 3.0, "att_impl_type": "GQA",
    "rope_theta": {}, "use_head_wise_attn_gate": true, "sliding_window": 512, "use_moe_router_bias": true,
    "need_fp32_gate": true, "sink": false, "layer_types": {}, "use_rope_layers": [], "num_nextn_predict_layers": 3,
    "partial_rotary_factors": {}, "attention_other_setting": {{"attention_type": "sliding_attention",
    "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128, "true_head_dim": 128}},
    "swiglu_limits": {}, "swiglu_limits_shared": {}, "zero_centered": true, "max_position_embeddings": 262144}})",
      sparse, by_layer("5000000.0", "10000.0"), by_layer("\"full_attention\"", "\"sliding_attention\""),
      by_layer("0.5", "1.0"), from(43, 45, "7.0"), from(44, 45, "16.0"));
  EXPECT_EQ(read(step), "");
  EXPECT_EQ(read_, preset("step-3.5-flash"));
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read_.window_of(44), 0);
  EXPECT_EQ(read_.heads_of(45), 96);
  const std::string next = R"({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
    "attention_bias": false, "attention_dropout": 0.0, "decoder_sparse_step": 1, "full_attention_interval": 4,
    "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [],
    "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
    "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2, "output_router_logits": false,
    "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000,
    "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
    "use_sliding_window": false, "vocab_size": 151936)";
  EXPECT_EQ(read(next + "}"), "");
  EXPECT_TRUE(warnings_.empty());
  ModelConfig alone = preset("qwen3-next-80b-a3b");
  EXPECT_EQ(read_, alone);
  EXPECT_TRUE(read_.is_recurrent(46));
  EXPECT_FALSE(read_.is_recurrent(47));
  EXPECT_TRUE(same_again());
  // Layer types say which layers; none of them recurrent; and what no interval says.
  const auto with_types = [&](const std::string& types) {
    std::string some = next;
    some.replace(some.find("\"num_hidden_layers\": 48"), 23, "\"num_hidden_layers\": 3");
    return some + ", \"layer_types\": [" + types + "]}";
  };
  const std::string full = "\"full_attention\"", linear = "\"linear_attention\"";
  EXPECT_EQ(read(with_types(linear + "," + full + "," + linear)), "");
  EXPECT_EQ(read_.full_attention_interval, 2);
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read(with_types(full + "," + full + "," + full)), "");
  EXPECT_FALSE(read_.recurs());
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read(with_types(linear + "," + linear + "," + linear)), "");
  EXPECT_TRUE(read_.is_recurrent(2));
  EXPECT_TRUE(same_again());
  EXPECT_EQ(read(with_types(linear + "," + full + "," + full)), "");
  EXPECT_EQ(read_.layer_pattern, "M**");
  EXPECT_TRUE(same_again());
  EXPECT_NE(read(with_types(linear + "," + full)).find("each of 3 layers"), std::string::npos);
  const std::pair<const char*, double> active[] = {
      {"olmoe-1b-7b", 1.3e9},        {"hy3", 21e9},           {"mimo-v2-flash", 15e9},
      {"dots.llm1", 14e9},           {"hunyuan-a13b", 13e9},  {"qwen2-57b-a14b", 14e9},
      {"ernie-4.5-300b-a47b", 47e9}, {"longcat-flash", 27e9}, {"phi-3.5-moe", 6.6e9}};
  // 10 billion without embedding and head, as announced.
  EXPECT_NEAR(model::active_parameters(model::shape_of(preset("minimax-m2"), "")) - 2.0 * 200064 * 3072, 10e9, 5e8);
  EXPECT_NEAR(model::active_parameters(model::shape_of(preset("minimax-01"), "")) - 2.0 * 200064 * 6144, 45.9e9,
              1e8);
  EXPECT_NEAR(model::active_parameters(model::shape_of(preset("qwen3-next-80b-a3b"), "")) - 2.0 * 151936 * 2048,
              3e9, 3e8);
  for (const auto& [name, count] : active)
    EXPECT_NEAR(model::active_parameters(model::shape_of(preset(name), name)), count, 0.05 * count) << name;
}

// The released files of models that select keys say which layers have an indexer, among their other keys.
TEST_F(Qwen3, IndexersAreRead) {
  const auto read = [&](const std::string& json) {
    std::ofstream(folder_ / "config.json") << json;
    warnings_.clear();
    try {
      read_ = read_huggingface_config(folder_ / "config.json", &warnings_);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string v32 = R"({"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
    "attention_bias": false, "attention_dropout": 0.0, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu",
    "hidden_size": 7168, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "initializer_range": 0.02,
    "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
    "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
    "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "tie_word_embeddings": false, "topk_group": 4,
    "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 129280)";
  EXPECT_EQ(read(v32 + "}"), "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  ModelConfig expected = preset("deepseek-v3.2");
  expected.sequence_aux_loss_alpha = 0;
  EXPECT_EQ(read_, expected);
  EXPECT_NE(read(v32 + R"(, "layer_types": ["full_attention"]})").find("only 'indexed_attention' for each of 61"),
            std::string::npos);
  EXPECT_NE(read(v32 + R"(, "mlp_layer_types": ["dense"]})").find("it must say what first_k_dense_replace says"),
            std::string::npos);
  EXPECT_NE(read(v32 + R"(, "indexer_rope_interleave": true})").find("the family's indexer rotates halves"),
            std::string::npos);
  const std::string glm = R"({"architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa",
    "num_hidden_layers": 6, "hidden_size": 6144, "intermediate_size": 12288, "vocab_size": 154880,
    "max_position_embeddings": 202752, "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 2048,
    "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "head_dim": 192,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "moe_layer_freq": 1, "moe_router_dtype": "float32", "indexer_rope_interleave": true,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "num_nextn_predict_layers": 1)";
  const auto indexers = [&](const std::string& more) {
    EXPECT_EQ(read(glm + more + "}"), "") << more;
    EXPECT_EQ(warnings_, std::vector<std::string>{}) << more;
    EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_) << more;
    EXPECT_EQ(family_of(read_).model_type, "glm_moe_dsa");
    std::string found;
    for (int64_t l = 0; l <= 6; ++l) found += read_.has_indexer(l) ? 'F' : 'S';
    return found;
  };
  EXPECT_EQ(indexers(""), "FFFFFFF");
  EXPECT_EQ(read_.index_n_heads, 32);
  EXPECT_EQ(indexers(R"(, "index_topk_freq": 4, "index_skip_topk_offset": 3)"), "FFFSSSF");
  EXPECT_EQ(
      indexers(R"(, "index_topk_freq": 2, "index_share_for_mtp_iteration": true, "index_topk_pattern": null)"),
      "FFSFSFF");
  EXPECT_EQ(indexers(R"(, "indexer_types": ["full", "shared", "shared", "full", "shared", "shared"])"), "FSSFSSF");
  EXPECT_EQ(indexers(R"(, "indexer_types": ["full", "full", "full", "shared", "shared", "shared"])"), "FFFSSSF");
  EXPECT_EQ(indexers(R"(, "indexer_types": ["full", "shared", "full", "shared", "shared", "full"])"), "FSFSSFF");
  EXPECT_EQ(read_.index_pattern, "ISISSI");
  EXPECT_NE(read(glm + R"(, "indexer_types": ["shared"]})").find("'indexer_types' is"), std::string::npos);
  EXPECT_NE(read(glm + R"(, "index_topk_pattern": "FSF"})").find("indexer_types says which"), std::string::npos);
  std::string v3 = v32 + "}";
  v3.replace(v3.find("DeepseekV32"), 11, "DeepseekV3").replace(v3.find("deepseek_v32"), 12, "deepseek_v3");
  EXPECT_NE(read(v3).find("of model_type deepseek_v32 or glm_moe_dsa"), std::string::npos) << read(v3);
}

// Keys that a file leaves out have the values of the configuration's, which are those of the presets.
TEST_F(Qwen3, Hy4IsRead) {
  const auto read = [&](const std::string& json) {
    std::ofstream(folder_ / "config.json") << json;
    warnings_.clear();
    try {
      read_ = read_huggingface_config(folder_ / "config.json", &warnings_);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string head = R"({"architectures": ["HYV4ForCausalLM"], "model_type": "hy_v4")";
  EXPECT_EQ(read(head + "}"), "");
  EXPECT_EQ(read_, preset("hy4-preview"));
  EXPECT_EQ(read(head + R"(, "head_dim": 256, "num_key_value_heads": 4, "learnable_sink_init": 0.5})"), "");
  EXPECT_EQ(read_, preset("hy4-preview"));
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_);
  EXPECT_EQ(family_of(read_).model_type, "hy_v4");
  const auto indexers = [&](const std::string& more) {
    EXPECT_EQ(read(head + R"(, "num_hidden_layers": 6)" + more + "}"), "") << more;
    EXPECT_EQ(model_config_from_json(model_config_to_json(read_), "x"), read_) << more;
    std::string found;
    for (int64_t l = 0; l < 6; ++l) found += read_.has_indexer(l) ? 'F' : 'S';
    return found;
  };
  EXPECT_EQ(indexers(""), "FFSSSF");
  EXPECT_EQ(indexers(R"(, "indexer_types": ["full", "shared", "shared", "full", "shared", "shared"])"), "FSSFSS");
  EXPECT_EQ(indexers(R"(, "indexer_types": ["full", "full", "full", "full", "full", "full"])"), "FFFFFF");
  EXPECT_NE(read(head + R"(, "swiglu_limit": 0})").find("'swiglu_limit' is 0"), std::string::npos);
  EXPECT_NE(read(head + R"(, "hc_mult": 0})").find("'hc_mult' is 0"), std::string::npos);
  EXPECT_NE(read(head + R"(, "rope_interleave": true})").find("the family rotates halves"), std::string::npos);
  EXPECT_NE(read(head + R"(, "attention_bias": true})").find("'attention_bias' is true"), std::string::npos);
  EXPECT_EQ(read(head + R"(, "num_nextn_predict_layers": 1})"), "");
  EXPECT_EQ(warnings_.size(), 1);
  // Beside a model of pictures. What says where pictures stand says nothing of text.
  EXPECT_EQ(read(R"({"architectures": ["HYV4VLForConditionalGeneration"], "model_type": "hy_v4_vl", "text_config":
    {"model_type": "hy_v4_vl_text", "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
    "mrope_section": [12, 10, 10]}}, "vision_config": {}, "image_token_id": 1})"),
            "");
  EXPECT_EQ(warnings_, std::vector<std::string>{});
  EXPECT_EQ(read_, preset("hy4"));
  const Family& family = family_of(read_);
  EXPECT_EQ(name_in(family, "model.layers.3.self_attn.gate_proj.weight"),
            "model.layers.3.self_attn.linear_gate.weight");
  EXPECT_EQ(name_in(family, "model.layers.3.mlp.gate_proj.weight"), "model.layers.3.mlp.gate_proj.weight");
  EXPECT_EQ(name_in(family, "model.layers.3.ffn_hc.base"), "model.layers.3.hc_pre.hc_mlp_layer.hc_base");
  EXPECT_EQ(name_in(family, "model.hc_head.hc_fn"), "model.hc_pre.hc_head.hc_head_fn");
}

// Of one expert of eight: gate and up are the columns of one matrix in turns, and matrices are transposed.
TEST(Published, ExpertsAreStackedAsTheFamilyDoes) {
  const Family& family = family_of(preset("gpt-oss-20b"));
  const auto place = [&](const std::string& name, const std::vector<int64_t>& shape) {
    return place_in(family, "model.layers.3.mlp.experts." + name, shape, 8);
  };
  const ReleasedPlace up = place("5.up_proj.weight", {6, 4});
  EXPECT_EQ(up.name, "model.layers.3.mlp.experts.gate_up_proj");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{8, 4, 12}));
  EXPECT_EQ(up.at(0, 4), 5 * 48 + 1);
  EXPECT_EQ(up.at(4 * 2 + 3, 4), 5 * 48 + 3 * 12 + 2 * 2 + 1);  // row 2, column 3
  const ReleasedPlace down = place("5.down_proj.weight", {4, 6});
  EXPECT_EQ(down.shape, (std::vector<int64_t>{8, 6, 4}));
  EXPECT_EQ(down.at(6 * 2 + 3, 6), 5 * 24 + 3 * 4 + 2);
  const ReleasedPlace bias = place("5.gate_proj.bias", {6});
  EXPECT_EQ(bias.name, "model.layers.3.mlp.experts.gate_up_proj_bias");
  EXPECT_EQ(bias.shape, (std::vector<int64_t>{8, 12}));
  EXPECT_EQ(bias.at(3, 6), 5 * 12 + 6);
  EXPECT_EQ(place("5.down_proj.bias", {4}).at(3, 4), 5 * 4 + 3);
  EXPECT_TRUE(place("5.down_proj.lora_A.weight", {2, 6}).is_whole);
  EXPECT_EQ(name_in(family, "model.layers.3.mlp.gate.bias"), "model.layers.3.mlp.router.bias");
}

// Queries, keys and values of a layer are rows of one matrix.
TEST(Published, LingsQueriesKeysAndValuesAreJoined) {
  const Family& family = family_of(preset("ling-mini-2.0"));
  const ReleasedPlace v = place_in(family, "model.layers.3.self_attn.v_proj.weight", {4, 6}, 0, {12, 16});
  EXPECT_EQ(v.name, "model.layers.3.attention.query_key_value.weight");
  EXPECT_EQ(v.shape, (std::vector<int64_t>{16, 6}));
  EXPECT_EQ(v.at(6 * 2 + 3, 6), 14 * 6 + 3);  // row 2, column 3
  const ReleasedPlace bias = place_in(family, "model.layers.3.self_attn.k_proj.bias", {4}, 0, {8, 16});
  EXPECT_EQ(bias.shape, (std::vector<int64_t>{16}));
  EXPECT_EQ(bias.at(3, 4), 8 + 3);
  EXPECT_EQ(name_in(family, "model.layers.3.self_attn.o_proj.weight"), "model.layers.3.attention.dense.weight");
}

TEST(Published, StepsExpertsLieTogether) {
  const Family& family = family_of(preset("step-3.5-flash"));
  const ReleasedPlace up = place_in(family, "model.layers.3.mlp.experts.5.up_proj.weight", {6, 4}, 8);
  EXPECT_EQ(up.name, "model.layers.3.moe.up_proj.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{8, 6, 4}));
  EXPECT_EQ(up.at(4 * 2 + 3, 4), 5 * 24 + 11);
  EXPECT_EQ(name_in(family, "model.layers.3.mlp.gate.weight"), "model.layers.3.moe.gate.weight");
  EXPECT_EQ(name_in(family, "model.layers.0.mlp.gate_proj.weight"), "model.layers.0.mlp.gate_proj.weight");
}

TEST(Published, Gpt2sMatricesAreTurnedAndJoined) {
  const Family& family = family_of(preset("gpt2"));
  const ReleasedPlace v = place_in(family, "model.layers.3.self_attn.v_proj.weight", {4, 6}, 0);
  EXPECT_EQ(v.name, "transformer.h.3.attn.c_attn.weight");
  EXPECT_EQ(v.shape, (std::vector<int64_t>{6, 12}));
  EXPECT_EQ(v.at(6 * 2 + 3, 6), 3 * 12 + 2 * 4 + 2);  // row 2, column 3
  const ReleasedPlace bias = place_in(family, "model.layers.3.self_attn.k_proj.bias", {4}, 0);
  EXPECT_EQ(bias.shape, (std::vector<int64_t>{12}));
  EXPECT_EQ(bias.at(3, 4), 4 + 3);
  EXPECT_EQ(name_in(family, "model.layers.11.mlp.down_proj.weight"), "transformer.h.11.mlp.c_proj.weight");
  EXPECT_EQ(name_in(family, "model.norm.bias"), "transformer.ln_f.bias");
  const HasTensor none = [](std::string_view) { return false; };
  EXPECT_TRUE(is_passed_over("h.0.attn.bias", none));
  EXPECT_FALSE(is_passed_over("h.0.attn.c_attn.bias", none));
}

TEST(LearnedPositions, AreRefusedWhereNothingHasThem) {
  ModelConfig model = preset("gpt2");
  model.num_nextn_predict_layers = 1;
  EXPECT_THROW(model::validate(model), ConfigError);
  model = ModelConfig();
  model.positions = model::Positions::learned;
  EXPECT_THROW(model::validate(model), ConfigError);
}

// A key of the other kind of attention would do nothing.
TEST(Attention, HasItsOwnKeys) {
  const auto message = [](const std::string& text) -> std::string {
    try {
      parse_run_config(text, "run.toml");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message("[model]\nattention = \"grouped\"\nkv_lora_rank = 8\n"),
            "run.toml:3:1: model.kv_lora_rank is of latent attention, and model.attention is \"grouped\"");
  EXPECT_EQ(
      message("[model]\nhead_dim = 8\n"),
      "run.toml:2:1: model.head_dim is of grouped or compressed attention, and model.attention is \"latent\"");
  EXPECT_EQ(message("[model]\nattention = \"grouped\"\npreset = \"deepseek-v2-lite\"\n"), "accepted");
}

}  // namespace
}  // namespace heddle::config
