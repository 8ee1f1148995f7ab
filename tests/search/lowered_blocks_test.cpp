// Prices of Heddle's own layers, by lowering one of each kind.
#include "heddle/search/lowered_blocks.h"

#include <gtest/gtest.h>

#include "heddle/config/run_config.h"
#include "heddle/search/plans/replicas.h"
#include "heddle/search/search.h"

namespace heddle::search {
namespace {

model::ModelConfig mixture() { return config::parse_run_config("", "", {"model.preset=deepseek-v2-lite"}).model; }

plan::Plan bf16() {
  plan::Plan plan;
  plan.dtype = Dtype::bf16;
  return plan;
}

Job job_of(const model::ModelConfig& c) {
  Job j;
  j.shape = model::shape_of(c, "test");
  j.device = *cost::accelerator_named("H100");
  j.sequence = 4096;
  j.global_batch = 64;
  return j;
}

double all_of(const BlockWork& b) { return b.forward.device_s() + b.backward.device_s(); }

// The same kernels' costs, counted by other means: products and attention within a quarter of the closed forms, and
// of what is kept within a half.
TEST(LoweredBlocks, AreNearTheClosedForms) {
  const model::ModelConfig c = mixture();
  const LoweredBlocks blocks(c, bf16());
  Job j = job_of(c);
  const Prices closed = prices_of(j, model::parameters_of(j.shape), {});
  const Prices& own = blocks.prices(j, {});
  const auto compute = [](const BlockWork& b) {
    return b.forward.products + b.forward.attention + b.backward.products + b.backward.attention;
  };
  EXPECT_NEAR(compute(own.dense) / (compute(closed.attention) + compute(closed.dense)), 1, 0.25);
  EXPECT_NEAR(compute(own.moe) / (compute(closed.attention) + compute(closed.moe)), 1, 0.25);
  EXPECT_NEAR(compute(own.head) / compute(closed.head), 1, 0.25);
  Layers kept;
  saved_bytes_of(j, closed, kept);
  ASSERT_TRUE(own.saved);
  EXPECT_NEAR(own.saved->kept.moe / (kept.kept.attention + kept.kept.moe), 1, 0.5);
  EXPECT_NEAR(own.saved->kept.dense / (kept.kept.attention + kept.kept.dense), 1, 0.5);
}

// A layer stands for all of its kind, the one that most letters of model.layer_pattern say; and for attention and a
// recurrence that are side by side.
TEST(LoweredBlocks, TakeLettersAndMixersSideBySide) {
  const auto compute = [](const BlockWork& b) {
    return b.forward.products + b.forward.attention + b.backward.products + b.backward.attention;
  };
  for (const char* name : {"lfm3-1.7b", "bamba-9b", "granite-4.0-h-micro", "falcon-h1-0.5b"}) {
    const model::ModelConfig c =
        config::parse_run_config("", "", {fmt::format("model.preset={}", name), "train.sequence_length=4096"})
            .model;
    const LoweredBlocks blocks(c, bf16());
    const Job j = job_of(c);
    EXPECT_EQ(blocks.refusal(j), "") << name;
    const double own = compute(blocks.prices(j, {}).dense);
    EXPECT_GT(own, 0) << name;
    const Prices closed = prices_of(j, model::parameters_of(j.shape), {});
    EXPECT_NEAR(own / (compute(closed.attention) + compute(closed.dense)), 1, 0.4) << name;
  }
}

// With a capacity the rows are those of the places whatever routing does, and the closed forms say the same.
TEST(LoweredBlocks, CapacityFixesTheRows) {
  const model::ModelConfig c = mixture();
  plan::Plan limited = bf16();
  limited.parallel.exchange.capacity_factor = 1.25;
  const LoweredBlocks dropless(c, bf16()), padded(c, limited);
  Job j = job_of(c);
  j.mesh = {.dp = 8, .ep = 8};
  const Prices even = dropless.prices(j, {});
  const Prices closed_even = prices_of(j, model::parameters_of(j.shape), {});
  Job with = j;
  with.exchange.capacity_factor = 1.25;
  const Prices own = padded.prices(with, {}), closed = prices_of(with, model::parameters_of(j.shape), {});
  EXPECT_GT(own.moe.forward.exchange, 0);
  for (const auto& [more, all] : {std::pair{&own, &even}, {&closed, &closed_even}}) {
    EXPECT_GT(more->moe.forward.products, all->moe.forward.products);
    EXPECT_LT(more->moe.forward.products, 1.26 * all->moe.forward.products);
  }
  EXPECT_NEAR(own.moe.forward.exchange / closed.moe.forward.exchange, 1, 0.1);
  with.imbalance = with.memory_imbalance = 3;
  const Prices uneven = padded.prices(with, {}), closed_uneven = prices_of(with, model::parameters_of(j.shape), {});
  EXPECT_EQ(uneven.moe.forward.products, own.moe.forward.products);
  EXPECT_EQ(uneven.saved->kept.moe, own.saved->kept.moe);
  EXPECT_EQ(closed_uneven.moe.forward.products, closed.moe.forward.products);
  EXPECT_EQ(closed_uneven.moe.forward.exchange, closed.moe.forward.exchange);
  with.exchange.replicas = 2;
  EXPECT_EQ(replica_slots(with), 0);  // no expert is hot
  with.exchange.capacity_factor = 0;
  EXPECT_EQ(replica_slots(with), 2);
  with.exchange.capacity_factor = 1e3;  // no more than every token
  EXPECT_EQ(fullest_rows(with, 1), static_cast<double>(c.n_routed_experts) / c.num_experts_per_tok);
}

TEST(LoweredBlocks, CommunicationHasItsCause) {
  const model::ModelConfig c = mixture();
  const LoweredBlocks blocks(c, bf16());
  Job j = job_of(c);
  const auto work = [&] {
    const Prices& p = blocks.prices(j, {});
    Work all = p.moe.forward;
    all += p.moe.backward;
    return all;
  };
  const Work alone = work();
  EXPECT_EQ(alone.tensor + alone.context + alone.exchange, 0);
  j.mesh.tp = 2;
  EXPECT_GT(work().tensor, 0);
  EXPECT_NEAR(work().attention / alone.attention, 0.5, 0.05);
  j.mesh.tp = 1, j.mesh.cp = 2;
  EXPECT_GT(work().context, 0);
  EXPECT_EQ(work().tensor, 0);
  j.mesh.cp = 1, j.mesh.ep = 8;
  const Work spread = work();
  EXPECT_GT(spread.exchange, 0);
  EXPECT_EQ(spread.hidden_exchange, 0);
  j.software.overlap_exchange = true;
  EXPECT_LT(work().exchange, spread.exchange);
  EXPECT_GT(work().hidden_exchange, 0);
}

// A ring's hop that leaves a node has one device's card; round inner rings one in so many leaves it.
TEST(LoweredBlocks, RingsBetweenNodes) {
  const model::ModelConfig c = mixture();
  const LoweredBlocks blocks(c, bf16());
  Job j = job_of(c);
  j.mesh.cp = 16;
  const auto context_s = [&](const Job& of) { return blocks.prices(of, {}).moe.forward.context; };
  j.context = model::Context::double_ring;
  j.context_inner = 8;
  Job ring = j;
  ring.context = model::Context::ring;
  ring.context_inner = 0;
  // Latent and rotary key in messages of their own.
  const double bytes = 2 * j.sequence / 16 * static_cast<double>(c.kv_lora_rank + c.qk_rope_head_dim);
  const double card_s = bytes / (j.device.outer.bytes_per_s * cost::NetworkEfficiency().send);
  const Work& all = blocks.prices(ring, {}).moe.forward;
  EXPECT_GT(all.context, 15 * card_s - all.attention);
  EXPECT_GT(all.context, 2 * context_s(j));
}

// An explanation asks what the step would be on a device with less or more of something.
TEST(LoweredBlocks, FollowTheDevice) {
  const model::ModelConfig c = mixture();
  const LoweredBlocks blocks(c, bf16());
  Job j = job_of(c);
  j.mesh.ep = 8;
  const Prices given = blocks.prices(j, {});
  Job other = j;
  other.device.bf16_flops *= 0.5;
  EXPECT_GT(blocks.prices(other, {}).moe.forward.products, 1.5 * given.moe.forward.products);
  other = j;
  other.device.memory_bytes_per_s *= 0.5;
  EXPECT_GT(blocks.prices(other, {}).moe.forward.traffic, 1.5 * given.moe.forward.traffic);
  other = j;
  other.device.inner.bytes_per_s *= 0.5;
  EXPECT_GT(blocks.prices(other, {}).moe.forward.exchange, 1.5 * given.moe.forward.exchange);
  EXPECT_EQ(blocks.prices(j, {}).moe.forward.exchange, given.moe.forward.exchange);
}

TEST(LoweredBlocks, RecomputeTradesBytesForTime) {
  const model::ModelConfig c = mixture();
  const LoweredBlocks blocks(c, bf16());
  Job j = job_of(c);
  const Prices none = blocks.prices(j, {});
  double kept = none.saved->kept.moe;
  for (const Recompute& r : {Recompute{GroupName::norm}, {GroupName::norm, GroupName::moe}, {GroupName::layer}}) {
    j.recompute = r;
    const Prices& p = blocks.prices(j, {});
    EXPECT_LT(p.saved->kept.moe, kept);
    EXPECT_GT(all_of(p.moe), all_of(none.moe));
    EXPECT_EQ(p.saved->whole.moe, none.saved->kept.moe);
    EXPECT_EQ(p.moe.forward.device_s(), none.moe.forward.device_s());
    kept = p.saved->kept.moe;
  }
  const double full_s = all_of(blocks.prices(j, {}).moe);
  j.recompute.every = 0.5;
  const Prices& half = blocks.prices(j, {});
  EXPECT_NEAR(all_of(half.moe), (full_s + all_of(none.moe)) / 2, 1e-9);
  EXPECT_NEAR(half.saved->kept.moe, (kept + none.saved->kept.moe) / 2, 1e-6);
}

// What the passes do to a layer is in its price.
TEST(LoweredBlocks, KnowFusions) {
  const model::ModelConfig c = mixture();
  plan::Plan plain = bf16();
  plain.fusions.clear();
  const LoweredBlocks fused(c, bf16()), unfused(c, plain);
  const Job j = job_of(c);
  const Prices &a = fused.prices(j, {}), &b = unfused.prices(j, {});
  EXPECT_LT(a.moe.forward.traffic, b.moe.forward.traffic);
  EXPECT_LT(a.moe.forward.ops, b.moe.forward.ops);
  EXPECT_LT(a.saved->kept.moe, b.saved->kept.moe);
  EXPECT_NEAR(a.moe.forward.products, b.moe.forward.products, 1e-9);
}

TEST(LoweredBlocks, SearchLeavesOutWhatCannotBeLowered) {
  model::ModelConfig c = mixture();
  c.vocab_size = 102398;  // by 2, not by 4
  const LoweredBlocks blocks(c, bf16());
  Query q;
  q.space.job = job_of(c);
  q.space.job.software.lowered = &blocks;
  q.space.devices = 16;
  q.space.restriction.set("microbatch=1,2");
  q.space.restriction.set("recompute=none,norms,full");
  Job wide = q.space.job;
  wide.mesh.tp = 4;
  EXPECT_NE(blocks.refusal(wide).find("model.vocab_size"), std::string::npos);
  EXPECT_NE(estimate(wide).reason, "");
  const Answer answer = search(q);
  ASSERT_FALSE(answer.top.empty());
  for (const Ranked& r : answer.top) {
    EXPECT_LE(r.job.mesh.tp, 2);
    EXPECT_EQ(blocks.refusal(r.job), "");
    EXPECT_LE(r.exact.peak_bytes, answer.memory_bytes);
  }
  // What every op takes twice as long for makes a step longer, by nearly as much.
  const LoweredBlocks slow(
      c, bf16(),
      [](const Job& j, const Behaviour& b, const ir::Listing& listing, const ir::Op& op,
         const ir::RowCounts& rows) { return 2 * accelerator_seconds(j, b, listing, op, rows); });
  q.space.job.software.lowered = &slow;
  const Answer slower = search(q);
  ASSERT_FALSE(slower.top.empty());
  EXPECT_GT(slower.top.front().exact.step_s, 1.5 * answer.top.front().exact.step_s);
}

}  // namespace
}  // namespace heddle::search
