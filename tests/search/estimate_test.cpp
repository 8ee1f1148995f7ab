#include "heddle/search/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/plans/context.h"
#include "tests/support/published_job.h"

namespace heddle::search {
namespace {

double tokens(const Job& j) {
  const Estimate e = estimate(j);
  EXPECT_EQ(e.reason, "");
  return e.tokens_per_s_per_device;
}

TEST(Estimate, TimesAddUp) {
  const Job j = job_of("Qwen3-235B-A22B", "H100", {.tp = 2, .dp = 16, .pp = 8, .ep = 32}, 1, 2048, 4);
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
  Job tp4 = job_of("Llama-3-70B", "H100", {.tp = 4, .dp = 2, .pp = 4}, 1, 32, 5), pp8 = tp4, tp8 = tp4;
  for (Job* j : {&tp4, &pp8, &tp8}) j->precision = cost::Precision::fp8;
  pp8.mesh = {.tp = 4, .pp = 8};
  pp8.chunks = 5;
  tp8.mesh = {.tp = 8, .pp = 4};
  tp8.chunks = 5;
  EXPECT_GT(tokens(tp4), tokens(pp8));
  EXPECT_GT(tokens(pp8), tokens(tp8));
  // DeepSeek-V3 wants the large domain.
  const Job nvl72 = job_of("DeepSeek-V3", "GB200", {.dp = 64, .pp = 4, .ep = 64}, 1, 4096, 4);
  const Job nvl8 = job_of("DeepSeek-V3", "B200", {.dp = 16, .pp = 16, .ep = 8}, 1, 4096);
  EXPECT_GT(tokens(nvl72), tokens(nvl8));
}

// Sixteen ranks of cp on two nodes: runs fill a node, and of the ways that are asked for the shortest is taken.
TEST(Estimate, TakesTheShortestWayOfContextRanks) {
  Job j = job_of("Llama-3-70B", "H100", {.tp = 1, .cp = 16}, 1, 16);
  const auto chosen = [&](const std::vector<std::string>& words) {
    Job with = j;
    choose_context(with, j, {}, words);
    return with;
  };
  for (const double sequence : {4096, 32768, 131072}) {
    j.sequence = sequence;
    const Job ring = chosen({"ring"});
    const double ring_s = estimate(ring).step_s;
    double least_s = ring_s;
    for (const model::Context way : {model::Context::hybrid, model::Context::double_ring}) {
      const Job runs = chosen({std::string(heddle::word_of(way))});
      EXPECT_EQ(runs.context, way);
      EXPECT_EQ(runs.context_inner, 8);
      EXPECT_LT(estimate(runs).step_s, ring_s) << sequence << heddle::word_of(way);
      least_s = std::min(least_s, estimate(runs).step_s);
    }
    EXPECT_EQ(estimate(chosen(context_words())).step_s, least_s);
  }
  // Runs are those that the heads of another layout can be cut among.
  j.context = model::Context::hybrid;
  j.context_inner = 8;
  j.mesh = {.tp = 2, .cp = 8};
  EXPECT_EQ(chosen({}).context_inner, 4);
  j.mesh = {.tp = 8, .cp = 2};
  EXPECT_EQ(chosen({}).context, model::Context::ring);
  j.mesh = {.tp = 1, .cp = 16};
  // Keys of eight heads can't be cut among sixteen ranks: the job keeps its own way.
  EXPECT_EQ(chosen({"ulysses"}).context, j.context);
  // Inner rings need no heads; in one node their messages have the links of the ring itself.
  j.context = model::Context::double_ring;
  j.mesh = {.tp = 8, .cp = 16};
  EXPECT_EQ(chosen({}).context_inner, 8);
  j.mesh = {.tp = 1, .cp = 8};
  EXPECT_EQ(chosen({}).context, model::Context::ring);
  EXPECT_EQ(chosen({"ring", "double_ring"}).context, model::Context::ring);
}

// Every rank waits for the hop that leaves the node, which has the card of one device.
TEST(Estimate, ARingBetweenNodesHasOneCard) {
  Job ring = job_of("Llama-3-70B", "H100", {.tp = 1, .cp = 16}, 1, 16);
  ring.sequence = 4096;
  ring.context = model::Context::ring;
  Job rings = ring;
  rings.context = model::Context::double_ring;
  rings.context_inner = 8;
  const double kv = 2 * 2 * 4096 / 16 * 8 * 128;  // of a rank in a layer: bf16, keys and values, 8 heads of 128
  const double card_s = kv / (ring.device.outer.bytes_per_s * cost::NetworkEfficiency().send);
  const cost::Group all{16, 1};
  EXPECT_NEAR(cost::hop_s(ring.device, {}, all, kv), card_s, 1e-6 * ring.device.outer.latency_us + 1e-12);
  EXPECT_LT(cost::hop_s(ring.device, {}, {8, 1}, kv), 0.5 * card_s);
  // Fifteen hops forward and twice as many bytes backward, beside the attention, which is short.
  const auto context_s = [&](const Job& j) { return estimate(j).time.context; };
  const double hops_s = 80 * 45 * card_s * 16;
  EXPECT_GT(context_s(ring), 0.5 * hops_s);
  EXPECT_LT(context_s(rings), 0.5 * context_s(ring));
}

TEST(Estimate, MoreBandwidthOrFewerBubblesNeverHurt) {
  Job j = job_of("Qwen3-235B-A22B", "H100", {.tp = 2, .dp = 16, .pp = 8, .ep = 32}, 1, 512);
  const double base = tokens(j);
  Job faster = j;
  faster.device.outer.bytes_per_s *= 2;
  EXPECT_GT(tokens(faster), base);
  Job interleaved = j;
  interleaved.chunks = 4;
  EXPECT_LT(estimate(interleaved).time.bubble, estimate(j).time.bubble / 3);
  Job skewed = j;
  skewed.imbalance = 1.3;
  EXPECT_LT(tokens(skewed), base);
  EXPECT_GT(estimate(skewed).peak_bytes, estimate(j).peak_bytes);
  Job recomputed = j;
  recomputed.recompute.set(GroupName::layer);
  EXPECT_LT(tokens(recomputed), base);
  EXPECT_LT(estimate(recomputed).activation_bytes, estimate(j).activation_bytes);
}

TEST(Estimate, ImpossibleJobsSayWhy) {
  Job j = job_of("Llama-3-8B", "H100", {.dp = 8}, 1, 8);
  EXPECT_EQ(estimate(j).reason, "");
  Job wrong = j;
  wrong.mesh.tp = wrong.mesh.dp = 1 << 24;
  EXPECT_EQ(estimate(wrong).reason, "tp x pp x cp x dp (16777216 x 1 x 1 x 16777216) are too many devices");
  wrong = j;
  wrong.mesh.ep = 8;
  EXPECT_EQ(estimate(wrong).reason, "ep 8 of a model without experts");
  wrong = j;
  wrong.mesh.tp = 0;
  EXPECT_EQ(estimate(wrong).reason, "a degree below 1: 0");
  Job experts = job_of("Mixtral-8x7B", "H100", {.dp = 8}, 1, 8);
  experts.mesh.ep = 8;
  experts.mesh.etp = 2;
  EXPECT_EQ(estimate(experts).reason,
            "ep x etp (8 x 2) is more than a stage's 8 ranks (tp 1 x cp 1 x dp 8): lower ep or etp");
  wrong = j;
  wrong.sequence = std::nan("");
  EXPECT_EQ(estimate(wrong).reason, "a sequence below 1: nan");
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
    s.hidden_size = static_cast<int64_t>(c.hidden);
    s.num_hidden_layers = static_cast<int64_t>(c.layers);
    s.num_attention_heads = s.num_key_value_heads = static_cast<int64_t>(c.heads);
    s.head_dim = s.hidden_size / s.num_attention_heads;
    s.intermediate_size = 4 * s.hidden_size;
    Saving v;
    v.tp = 8;
    v.dropout = true;
    v.fused_attention = v.sequence_parallel = false;
    // The first stage keeps L layers' worth of one microbatch, L(1 + (p-1)/(p·v)) where chunks are interleaved.
    const double layers = c.layers * (c.vpp > 1 ? 1 + (c.pp - 1.0) / (c.pp * c.vpp) : 1),
                 tokens = c.microbatch * 2048.0;
    const double gib = 1024.0 * 1024 * 1024;
    SavedBytes b = saved_bytes(s, v, 2048);
    EXPECT_NEAR(layers * tokens * (b.attention + b.dense) / gib, c.plain_gib, 0.01);
    v.sequence_parallel = true;
    v.recompute.set(GroupName::attention);
    b = saved_bytes(s, v, 2048);
    EXPECT_NEAR(layers * tokens * (b.attention + b.dense) / gib, c.selective_gib, 0.01);
  }
}

TEST(Estimate, IsFast) {
  const Job j = job_of("DeepSeek-V3", "H800", {.dp = 128, .pp = 16, .ep = 64}, 1, 15360);
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
