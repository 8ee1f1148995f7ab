// Closed forms against published counts, vendors' FLOPs, and the tables of arXiv 2205.05198.
#include "heddle/model/shapes/shape.h"

#include <gtest/gtest.h>

#include "heddle/model/shapes/shape_names.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::model {
namespace {

const Shape& preset(const char* name) {
  const Shape* shape = find_shape(name);
  if (shape == nullptr) throw std::runtime_error(name);
  return *shape;
}

TEST(Shape, ParametersEqualThePublishedCounts) {
  const std::pair<const char*, double> published[] = {
      {"Llama-2-7B", 6738415616},     {"Llama-2-13B", 13015864320},      {"Llama-2-70B", 68976648192},
      {"Llama-3-8B", 8030261248},     {"Llama-3-70B", 70553706496},      {"Llama-3.1-405B", 405853388800},
      {"Qwen3-8B", 8190735360},       {"Qwen3-14B", 14768307200},        {"Qwen3-32B", 32762123264},
      {"Qwen3-30B-A3B", 30532122624}, {"Qwen3-235B-A22B", 235093634560}, {"Mixtral-8x7B", 46702792704},
      {"DeepSeek-V3", 671026419200},  {"DeepSeek-V2", 235741434880},     {"DeepSeek-V2-Lite", 15706484224},
      {"GPT-OSS-120B", 116829156672}, {"GPT-OSS-20B", 20914757184},      {"BLOOM-176B", 176247271424},
      {"MPT-7B", 6649286656},         {"MPT-30B", 29957200896},          {"GPT-2", 124439808},
      {"Mistral-7B", 7241732096},
  };
  for (const auto& [name, count] : published) EXPECT_EQ(total_parameters(preset(name)), count) << name;
  EXPECT_NEAR(active_parameters(preset("DeepSeek-V3")), 37.55e9, 0.01e9);
}

TEST(Shape, ParametersAreNearThePublishedTotals) {
  struct Published {
    const char* name;
    double total, active;  // billions; active 0: as many, or only rounded ones are published
  };
  const Published published[] = {
      {"Llama-3.2-1B", 1.2358, 0},
      {"Llama-3.2-3B", 3.2127, 0},
      {"Llama-4-Scout", 107.77, 17.17},
      {"Llama-4-Maverick", 400.7, 17},
      {"Qwen3-0.6B", 0.5960, 0},
      {"Qwen3-1.7B", 1.7206, 0},
      {"Qwen3-4B", 4.0225, 0},
      {"Qwen2.5-0.5B", 0.4940, 0},
      {"Qwen2.5-7B", 7.6156, 0},
      {"Qwen2.5-72B", 72.706, 0},
      {"Gemma-2-9B", 9.2417, 0},
      {"Gemma-2-27B", 27.227, 0},
      {"Gemma-3-27B", 27.01, 0},
      {"Yi-34B", 34.389, 0},
      {"ChatGLM3-6B", 6.2436, 0},
      {"Qwen3-Next-80B-A3B", 80, 0},
      {"Kimi-Linear-48B-A3B", 49.12, 0},
      {"Ling-3.0-Flash", 124.4, 0},
      {"Ling-3.0-Tiny", 7.893, 0},
      {"GLM-5.3-Flash", 313.3, 0},
      {"MiniMax-01", 456, 0},
      {"Nemotron-3-Nano", 31.6, 3.6},
      {"Nemotron-3-Super", 120.6, 12.7},
      {"Nemotron-Nano-9B-v2", 8.89, 0},
      {"DeepSeek-V3.2", 671.9, 0},
      {"Pangu-Ultra-MoE", 718, 0},
      {"GLM-5", 744, 0},
      {"GLM-4.5", 355, 0},
      {"GLM-4.5-Air", 106, 0},
      {"MiniMax-M2", 230, 0},
      {"Grok-1", 314, 0},
      {"InternLM2-20B", 19.86, 0},
  };
  for (const Published& p : published) {
    EXPECT_NEAR(total_parameters(preset(p.name)) / (1e9 * p.total), 1, 0.01) << p.name;
    if (p.active > 0) {
      EXPECT_NEAR(active_parameters(preset(p.name)) / (1e9 * p.active), 1, 0.0115) << p.name;
    }
  }
}

TEST(Shape, MixersBesideAttention) {
  const Shape& next = preset("Qwen3-Next-80B-A3B");
  const ForwardFlops near = forward_flops(next, 4096), far = forward_flops(next, 65536);
  // The rule costs the same at any length; one layer of four has attention.
  EXPECT_EQ(near.recurrence, far.recurrence);
  EXPECT_GT(near.recurrence, 0);
  EXPECT_DOUBLE_EQ(far.attention_core / near.attention_core, 16);
  EXPECT_DOUBLE_EQ(near.attention_core, 0.25 * 4096 * 16 * 2 * 256);
  const Shape& kimi = preset("Kimi-Linear-48B-A3B");
  EXPECT_DOUBLE_EQ(kimi.recurrent(), 20.0 / 27);  // the last layer has attention, too
  EXPECT_DOUBLE_EQ(forward_flops(kimi, 4096).attention_core, 7.0 / 27 * 4096 * 32 * (192 + 128));
  EXPECT_DOUBLE_EQ(preset("MiniMax-01").recurrent(), 7.0 / 8);
  const Shape &sparse = preset("DeepSeek-V3.2"), &whole = preset("DeepSeek-V3");
  // A query attends to 2,048 keys at most; its indexer scores all of them, by narrower heads.
  const ForwardFlops few = forward_flops(sparse, 65536), all = forward_flops(whole, 65536);
  EXPECT_LT(few.attention_core, all.attention_core / 15);
  EXPECT_NEAR(few.attention_index / all.attention_core, 64.0 * 128 / (128 * 320), 1e-9);
  const Shape& gemma = preset("Gemma-3-27B");
  EXPECT_NEAR(gemma.windowed(), 52.0 / 62, 1e-9);
  EXPECT_LT(forward_flops(gemma, 65536).attention_window, 0.2 * forward_flops(gemma, 65536).attention_core);
}

TEST(Shape, TrainingFlopsFollowTheVendorsConvention) {
  struct Case {
    const char* name;
    double sequence;
    bool mtp;
    double gflops;  // TFLOP/s ÷ tokens/s of NVIDIA's tables, medians
  };
  const Case cases[] = {
      {"Llama-3-8B", 8192, true, 51.47},       {"Llama-3-70B", 8192, true, 449.2},
      {"Llama-3.1-405B", 8192, true, 2524.2},  {"Qwen3-30B-A3B", 4096, true, 23.01},
      {"Qwen3-235B-A22B", 4096, true, 147.98}, {"DeepSeek-V3", 4096, false, 249.7},
      {"DeepSeek-V3", 4096, true, 260.0},      {"Kimi-K2", 4096, true, 204.5},
      {"Llama-3-70B", 4096, true, 433.1},
  };
  for (const Case& c : cases) {
    const double flops = training_flops_per_token(preset(c.name), c.sequence, c.mtp) / 1e9;
    EXPECT_NEAR(flops / c.gflops, 1, 0.005) << c.name;
  }
}

TEST(Shape, HardwareFlopsAreMegatron2021s) {
  // 96·B·s·l·h²(1 + s/6h + V/16lh) of arXiv 2104.04473, here a token.
  const Shape& s = preset("GPT-3-175B");
  const double h = 12288, l = 96, v = 51200, q = 2048;
  const double paper = 96 * l * h * h * (1 + q / (6 * h) + v / (16 * l * h));
  EXPECT_NEAR(training_flops_per_token(s, q, true, true, true) / paper, 1, 1e-12);
}

TEST(Shape, NamesAreFoundHoweverTheyAreSpelt) {
  EXPECT_EQ(preset("LLAMA3.1_405B").name, "Llama-3.1-405B");
  EXPECT_EQ(preset("meta-llama/Llama-3.1-405B").name, "Llama-3.1-405B");
  EXPECT_EQ(preset("Qwen3_30B_a3B").name, "Qwen3-30B-A3B");
  EXPECT_EQ(preset("LLAMA3-8B").name, "Llama-3-8B");
  EXPECT_EQ(preset("GPT3-175B").name, "GPT-3-175B");
  EXPECT_EQ(preset("meta-llama/Llama-3.1-70B-Instruct").name, "Llama-3-70B");
  EXPECT_EQ(preset("meta-llama/Meta-Llama-3-8B").name, "Llama-3-8B");
  EXPECT_EQ(preset("Meta-Llama-3-70B-Instruct").name, "Llama-3-70B");
  EXPECT_EQ(preset("Llama-2-7b-chat-hf").name, "Llama-2-7B");
  EXPECT_EQ(preset("google/gemma-2-27b-it").name, "Gemma-2-27B");
  EXPECT_EQ(preset("mistralai/Mixtral-8x7B-Instruct-v0.1").name, "Mixtral-8x7B");
  EXPECT_EQ(preset("Qwen3-30B-A3B-Instruct-2507").name, "Qwen3-30B-A3B");
  EXPECT_EQ(preset("deepseek-ai/DeepSeek-V3.1-Base").name, "DeepSeek-V3");
  EXPECT_EQ(preset("Kimi-K2-Instruct").name, "Kimi-K2");
  EXPECT_EQ(find_shape("gpt-oss"), nullptr) << "there are two";
  EXPECT_EQ(find_shape("meta"), nullptr);
  EXPECT_EQ(find_shape("instruct"), nullptr);
  EXPECT_EQ(find_shape("no such model"), nullptr);
  EXPECT_EQ(find_shape(""), nullptr);
  for (const Shape& s : shape_presets()) {
    EXPECT_EQ(check_shape(s), "") << s.name;
    EXPECT_EQ(find_shape(s.name), &s) << s.name;
  }
}

TEST(Shape, RefusalsNameTheNearOnesAlone) {
  std::vector<std::string> known;
  for (const Shape& s : shape_presets()) known.push_back(s.name);
  EXPECT_EQ(names_like("mixtral", known), ", may be any of Mixtral-8x7B, Mixtral-8x22B");
  EXPECT_EQ(names_like("openai/gpt-oss", known), ", may be any of GPT-OSS-120B, GPT-OSS-20B");
  EXPECT_EQ(names_like("maverick", known), ", did you mean 'Llama-4-Maverick'?");
  EXPECT_EQ(names_like("Qwen3-8B-FP8", known), ", did you mean 'Qwen3-8B'?");
  EXPECT_EQ(names_like("Qwen3-30B-A4B", known), ", did you mean 'Qwen3-30B-A3B'?");
  EXPECT_EQ(names_like("", known), "");
  EXPECT_EQ(names_like("a toaster", known), "");
  const std::string many = names_like("3b", known);
  EXPECT_NE(many.find("may be any of"), std::string::npos);
  const std::string most = names_like("8b", {"8b1", "8b2", "8b3", "8b4", "8b5", "8b6", "8b7", "8b8", "8b9", "8b10",
                                             "8b11", "8b12", "8b13", "8b14"});
  EXPECT_TRUE(most.ends_with("8b12 and 2 more")) << most;
}

// A shape keeps the keys that a model uses; the others are those of a shape of no size.
TEST(Shape, OfAConfigurationIsItsModel) {
  ModelConfig c;
  c.attention = ModelConfig::Attention::grouped;
  c.sliding_window = 512;
  c.full_attention_interval = 4;
  c.moe_latent_size = 96;
  c.shared_intermediate_size = 200;
  c.shared_expert_gate = true;
  const Shape s = shape_of(c, "mine");
  EXPECT_EQ(s.windowed(), 0.75);
  EXPECT_EQ(s.shared_width(), 200);
  EXPECT_EQ(s.kv_lora_rank, 0);
  Shape whole = s;
  whole.sliding_window = whole.full_attention_interval = 0;
  // A query sees 512 keys less half a window of the first ones, in place of half of the sequence.
  const double keys = 512 - 512.0 * 512 / (2 * 4096), all = 2048;
  EXPECT_DOUBLE_EQ(forward_flops(s, 4096).attention_core / forward_flops(whole, 4096).attention_core,
                   0.25 + 0.75 * keys / all);
  c.first_k_dense_replace = c.num_hidden_layers;
  Shape none;
  none.drop_experts();
  EXPECT_EQ(shape_of(c, "dense").n_routed_experts, 0);
  EXPECT_EQ(shape_of(c, "dense").moe_latent_size, none.moe_latent_size);
}

// DeepSeek-V4's four streams around each block of a model: maps, starts and scales of two blocks a layer, and the
// head.
TEST(Shape, StreamsOfTheResidual) {
  Shape plain = preset("DeepSeek-V3");
  plain.num_nextn_predict_layers = 0;
  Shape s = plain;
  s.hyper_connections = 4;
  const int64_t width = 4 * s.hidden_size, layers = s.num_hidden_layers;
  EXPECT_EQ(s.residual_width(), width);
  EXPECT_EQ(plain.residual_width(), plain.hidden_size);
  EXPECT_EQ(total_parameters(s) - total_parameters(plain),
            static_cast<double>(2 * layers * (24 * width + 24 + 3) + 4 * width + 4 + 1));
  EXPECT_EQ(training_flops_per_token(s, 4096) - training_flops_per_token(plain, 4096),
            static_cast<double>(6 * (2 * layers * 24 + 4) * width));
  s.hyper_connections_kind = HyperConnection::independent;
  EXPECT_EQ(total_parameters(s) - total_parameters(plain),
            static_cast<double>(2 * layers * (8 * width + 8 + 2) + 4 * width + 4 + 1));
}

// Gates of latent attention: a map by head or by element, and a number a head.
TEST(Shape, GatesAndSinksOfLatentAttention) {
  const Shape plain = preset("DeepSeek-V3");
  const int64_t layers = plain.num_hidden_layers, heads = plain.num_attention_heads;
  Shape s = plain;
  s.attention_sinks = true;
  EXPECT_EQ(total_parameters(s) - total_parameters(plain), static_cast<double>(layers * heads));
  for (const auto& [gate, width] :
       {std::pair{AttentionGate::head, int64_t{1}}, {AttentionGate::element, plain.v_head_dim}}) {
    s = plain;
    s.attention_gate = gate;
    const auto map = static_cast<double>(heads * width * plain.hidden_size);
    EXPECT_EQ(total_parameters(s) - total_parameters(plain), static_cast<double>(layers) * map);
    EXPECT_EQ(forward_flops(s, 4096).attention_linear - forward_flops(plain, 4096).attention_linear, 2 * map);
  }
}

// Before entries are chosen, queries see all that have ended.
TEST(Shape, TheDenseStageSeesAllEntries) {
  ModelConfig c;
  c.attention = ModelConfig::Attention::compressed;
  c.num_hidden_layers = 4;
  c.compression_pattern = "WSHS";
  c.sliding_window = 128, c.index_topk = 512;
  Shape s = shape_of(c, "entries");
  s.index_stage = IndexStage::sparse;
  const double length = 65536, rate = static_cast<double>(s.sparse_rate), few = static_cast<double>(s.index_topk);
  const double chosen = few - few * few * rate / (2 * length), all = length / 2 / rate;
  const ForwardFlops sparse = forward_flops(s, length);
  s.index_stage = IndexStage::dense;
  const ForwardFlops dense = forward_flops(s, length);
  EXPECT_NEAR(dense.attention_core - sparse.attention_core,
              0.5 * (all - chosen) * 4 * static_cast<double>(s.num_attention_heads * s.head_dim),
              1e-9 * dense.attention_core);
  EXPECT_EQ(dense.attention_index, sparse.attention_index);
}

TEST(Shape, SharedExpertsOfAnyWidth) {
  Shape s = preset("DeepSeek-V3");
  s.set_shared_width(2 * s.moe_intermediate_size);
  EXPECT_EQ(s.n_shared_experts, 2);
  EXPECT_EQ(s.shared_intermediate_size, 0);
  s.set_shared_width(1000);
  EXPECT_EQ(s.shared_width(), 1000);
  s.set_shared_width(0);
  EXPECT_EQ(s.shared_width(), 0);
}

TEST(Shape, WrongNumbersAreNamed) {
  Shape s = preset("Qwen3-30B-A3B");
  s.num_experts_per_tok = 129;
  EXPECT_EQ(check_shape(s), "topk");
  s = preset("Llama-3-8B");
  s.num_key_value_heads = 64;
  EXPECT_EQ(check_shape(s), "kv_heads");
  s.hidden_size = -1;
  EXPECT_EQ(check_shape(s), "hidden");
}

}  // namespace
}  // namespace heddle::model
