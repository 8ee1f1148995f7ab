#include "heddle/search/estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>

#include "heddle/model/shapes/shape_presets.h"

namespace heddle::search {
namespace {

Job job_of(const char* model, const char* device, Layout layout, int microbatch, int global_batch) {
  Job j;
  j.shape = *model::find_shape(model);
  j.device = *cost::accelerator_named(device);
  j.layout = layout;
  j.microbatch = microbatch;
  j.global_batch = global_batch;
  return j;
}

double tokens(const Job& j) {
  const Estimate e = estimate(j);
  EXPECT_EQ(e.reason, "");
  return e.tokens_per_s_per_device;
}

TEST(Estimate, TimesAddUp) {
  const Job j = job_of("Qwen3-235B-A22B", "H100", {256, 2, 8, 4, 1, 16, 32, 1}, 1, 2048);
  const Estimate e = estimate(j);
  const Waterfall& t = e.time;
  EXPECT_NEAR(t.products + t.attention + t.traffic + t.launches + t.tensor + t.exchange + t.context + t.pipeline +
                  t.data + t.bubble + t.optimizer + t.jitter,
              e.step_s, 1e-9 * e.step_s);
  EXPECT_NEAR(e.tokens_per_s_per_device * e.step_s * 256, 2048 * 4096.0, 1);
  EXPECT_GT(e.model_flops_utilization, 0.05);
  EXPECT_LT(e.model_flops_utilization, 1);
}

TEST(Estimate, OrdersKnownLayouts) {
  // Llama-3-70B on 32 H100, measured: TP 4 before PP 8 before TP 8.
  Job tp4 = job_of("Llama-3-70B", "H100", {32, 4, 4, 5, 1, 2}, 1, 32), pp8 = tp4, tp8 = tp4;
  for (Job* j : {&tp4, &pp8, &tp8}) j->precision = cost::Precision::fp8;
  pp8.layout = {32, 4, 8, 5, 1, 1};
  tp8.layout = {32, 8, 4, 5, 1, 1};
  EXPECT_GT(tokens(tp4), tokens(pp8));
  EXPECT_GT(tokens(pp8), tokens(tp8));
  // DeepSeek-V3 wants the large domain.
  const Job nvl72 = job_of("DeepSeek-V3", "GB200", {256, 1, 4, 4, 1, 64, 64, 1}, 1, 4096);
  const Job nvl8 = job_of("DeepSeek-V3", "B200", {256, 1, 16, 1, 1, 16, 8, 1}, 1, 4096);
  EXPECT_GT(tokens(nvl72), tokens(nvl8));
}

TEST(Estimate, MoreBandwidthOrFewerBubblesNeverHurt) {
  Job j = job_of("Qwen3-235B-A22B", "H100", {256, 2, 8, 1, 1, 16, 32, 1}, 1, 512);
  const double base = tokens(j);
  Job faster = j;
  faster.device.outer.bytes_per_s *= 2;
  EXPECT_GT(tokens(faster), base);
  Job interleaved = j;
  interleaved.layout.vpp = 4;
  EXPECT_LT(estimate(interleaved).time.bubble, estimate(j).time.bubble / 3);
  Job skewed = j;
  skewed.imbalance = 1.3;
  EXPECT_LT(tokens(skewed), base);
  EXPECT_GT(estimate(skewed).peak_bytes, estimate(j).peak_bytes);
  Job recomputed = j;
  recomputed.recompute.full = true;
  EXPECT_LT(tokens(recomputed), base);
  EXPECT_LT(estimate(recomputed).activation_bytes, estimate(j).activation_bytes);
}

TEST(Estimate, ImpossibleJobsSayWhy) {
  Job j = job_of("Llama-3-8B", "H100", {8, 1, 1, 1, 1, 8}, 1, 8);
  EXPECT_EQ(estimate(j).reason, "");
  Job wrong = j;
  wrong.layout.devices = 7;
  EXPECT_EQ(estimate(wrong).reason, "tp x pp x cp x dp is not the devices");
  wrong = j;
  wrong.layout.ep = 8;
  EXPECT_EQ(estimate(wrong).reason, "expert ranks without experts");
  wrong = j;
  wrong.layout.tp = 0;
  EXPECT_EQ(estimate(wrong).reason, "a degree below 1");
  wrong = j;
  wrong.sequence = std::nan("");
  EXPECT_EQ(estimate(wrong).reason, "a sequence below 1");
}

TEST(StageLayers, AreEvenWhereTheyCanBe) {
  EXPECT_EQ(stage_layers(80, 8, 5, 1).fullest, 10);
  EXPECT_EQ(stage_layers(80, 8, 5, 1).last, 10);
  EXPECT_EQ(stage_layers(126, 16, 8, 1).fullest, 8);  // embedding and head count as layers
  EXPECT_EQ(stage_layers(126, 16, 8, 1).last, 7);
  EXPECT_EQ(stage_layers(61, 16, 1, 0.5).fullest, 4);
  EXPECT_EQ(stage_layers(61, 1, 1, 2).fullest, 61);
  EXPECT_GE(stage_layers(3, 4, 1, 5).fullest, 1);
}

// Published algebra of arXiv 2205.05198, Fig. 1: activations of the first stage in GiB, without recomputation and
// with sequence parallelism and the scores recomputed.
TEST(EstimateMemory, InterleavedFirstStageIsThePapers) {
  struct Case {
    double hidden, layers, heads;
    int pp, vpp, microbatch;
    double plain_gib, selective_gib;
  };
  const Case cases[] = {{6144, 48, 64, 1, 1, 4, 59.25, 9.56},
                        {12288, 96, 96, 8, 3, 1, 66.84, 12.35},
                        {20480, 105, 128, 35, 3, 1, 114.02, 23.08},
                        {25600, 128, 160, 64, 1, 1, 131.25, 26.56}};
  for (const Case& c : cases) {
    model::Shape s = *model::find_shape("GPT-3-175B");
    s.hidden = static_cast<int64_t>(c.hidden);
    s.layers = static_cast<int64_t>(c.layers);
    s.heads = s.kv_heads = static_cast<int64_t>(c.heads);
    s.head_dim = s.hidden / s.heads;
    s.ffn = 4 * s.hidden;
    model::Saving v;
    v.tp = 8;
    v.dropout = true;
    v.fused_attention = v.sequence_parallel = false;
    // The first stage keeps L layers' worth of one microbatch, L(1 + (p-1)/(p·v)) where chunks are interleaved.
    const double layers = c.layers * (c.vpp > 1 ? 1 + (c.pp - 1.0) / (c.pp * c.vpp) : 1),
                 tokens = c.microbatch * 2048.0;
    const double gib = 1024.0 * 1024 * 1024;
    model::SavedBytes b = model::saved_bytes(s, v, 2048);
    EXPECT_NEAR(layers * tokens * (b.attention + b.dense) / gib, c.plain_gib, 0.01);
    v.sequence_parallel = v.recompute.scores = true;
    b = model::saved_bytes(s, v, 2048);
    EXPECT_NEAR(layers * tokens * (b.attention + b.dense) / gib, c.selective_gib, 0.01);
  }
}

TEST(Estimate, IsFast) {
  const Job j = job_of("DeepSeek-V3", "H800", {2048, 1, 16, 1, 1, 128, 64, 1}, 1, 15360);
  const std::clock_t start = std::clock();  // of this process alone
  double sum = 0;
  constexpr int kTimes = 2000;
  for (int i = 0; i < kTimes; ++i) sum += estimate(j).step_s;
  const double us = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kTimes * 1e6;
  EXPECT_GT(sum, 0);
  EXPECT_LT(us, 1000);  // 20 us; loose, for sanitizers and slow processors
}

}  // namespace
}  // namespace heddle::search
