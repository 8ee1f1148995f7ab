// Closed forms against published counts, vendors' FLOPs, and the tables of arXiv 2205.05198.
#include "heddle/model/shapes/shape.h"

#include <gtest/gtest.h>

#include <cmath>

#include "heddle/model/shapes/saved_bytes.h"
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
  EXPECT_NEAR(total_parameters(preset("Nemotron-3-Nano")), 31.6e9, 0.05e9);
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

TEST(SavedBytes, OfAGptLayerAreThePapersSum) {
  const Shape& s = preset("GPT-3-175B");
  const double h = 12288, a = 96, q = 2048;
  for (const double t : {1.0, 8.0}) {
    Saving v;
    v.fused_attention = v.sequence_parallel = false;
    v.dropout = true;
    v.tp = t;
    SavedBytes b = saved_bytes(s, v, q);
    EXPECT_DOUBLE_EQ(b.attention + b.dense, h * (10 + 24 / t + 5 * a * q / (h * t)));
    v.sequence_parallel = v.recompute.scores = true;
    b = saved_bytes(s, v, q);
    EXPECT_DOUBLE_EQ(b.attention + b.dense, 34 * h / t);
    v.recompute = {.full = true};
    b = saved_bytes(s, v, q);
    EXPECT_DOUBLE_EQ(b.attention + b.dense, 2 * h / t);
  }
}

TEST(SavedBytes, OfMixtureAndLatentAttentionAreTheTables) {
  const Shape& s = preset("DeepSeek-V3");
  Saving v;
  v.imbalance = 1.5;
  const SavedBytes b = saved_bytes(s, v, 4096);
  const double h = 7168, a = 128, rq = 1536, rkv = 512, dn = 128, dr = 64, dv = 128, k = 8, fe = 2048, fs = 2048;
  EXPECT_DOUBLE_EQ(b.attention,
                   4 * h + 4 * rq + 2 * (rkv + dr) + 2 * rkv + 2 * a * (2 * (dn + dr) + dv) + 2 * a * dv + 4 * a);
  EXPECT_DOUBLE_EQ(b.moe, 4 * h + 9 * 256 + 1.5 * (2 * k * h + 6 * k * fe) + 6 * fs);
  EXPECT_DOUBLE_EQ(b.dense, 4 * h + 6 * 18432);
  v.recompute.experts = true;
  EXPECT_DOUBLE_EQ(saved_bytes(s, v, 4096).moe, 4 * h + 9 * 256);
  v.gates_before_down = false;
  v.recompute = {};
  EXPECT_DOUBLE_EQ(saved_bytes(s, v, 4096).moe, b.moe + 1.5 * 2 * k * h);
}

TEST(Shape, NamesAreFoundHoweverTheyAreSpelt) {
  EXPECT_EQ(preset("LLAMA3.1_405B").name, "Llama-3.1-405B");
  EXPECT_EQ(preset("meta-llama/Llama-3.1-405B").name, "Llama-3.1-405B");
  EXPECT_EQ(preset("Qwen3_30B_a3B").name, "Qwen3-30B-A3B");
  EXPECT_EQ(preset("LLAMA3-8B").name, "Llama-3-8B");
  EXPECT_EQ(preset("GPT3-175B").name, "GPT-3-175B");
  EXPECT_EQ(find_shape("no such model"), nullptr);
  EXPECT_EQ(find_shape(""), nullptr);
  for (const Shape& s : shape_presets()) {
    EXPECT_EQ(check_shape(s), "") << s.name;
    EXPECT_EQ(find_shape(s.name), &s) << s.name;
  }
}

TEST(Shape, WrongNumbersAreNamed) {
  Shape s = preset("Qwen3-30B-A3B");
  s.moe.chosen = 129;
  EXPECT_EQ(check_shape(s), "topk");
  s = preset("Llama-3-8B");
  s.kv_heads = 64;
  EXPECT_EQ(check_shape(s), "kv_heads");
  s.hidden = -1;
  EXPECT_EQ(check_shape(s), "hidden");
}

}  // namespace
}  // namespace heddle::model
