// Memory over a step by kind: the curves of a step that ran and of one that nobody ran reach the walk's peak to the
// byte, and both are one.
#include "heddle/simulate/memory_log.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/passes/host/offload.h"
#include "tests/simulate/tiny_step.h"

namespace heddle::test {
namespace {

using simulate::MemoryCurve;
using simulate::MemoryKind;
using simulate::MemoryLog;
using simulate::sum_of;

double ordinal(const MemoryLog::Issued& op) { return op.number; }

// Of rank 0.
std::vector<MemoryCurve> predicted(TinyRun& run, const simulate::RowsRead& rows = nullptr) {
  MemoryLog log(run.lowered().program, 0);
  simulate::RecordOptions options;
  options.scratch_bytes = scratch_of(run);
  options.rows = rows;
  options.watcher = &log;
  options.steps = 2;
  const simulate::Recording recording = simulate::record(run.lowered().program, 0, options);
  const std::vector<MemoryCurve> curves = log.curves(ordinal, static_cast<double>(recording.ops.size()));
  EXPECT_EQ(curves[0].peak.bytes, recording.peak_live_bytes);
  EXPECT_EQ(curves[0].persistent_bytes, recording.persistent_bytes);
  EXPECT_EQ(curves[0].bytes.size(), recording.ops.size());
  for (size_t i = 0; i < recording.ops.size(); ++i)
    EXPECT_EQ(sum_of(curves[0].bytes[i]), recording.ops[i].live_bytes);
  if (curves.size() > 1) {
    EXPECT_EQ(curves[1].peak.bytes, recording.host_peak_live_bytes);
  }
  return curves;
}

const MemoryCurve* on_host(const std::vector<MemoryCurve>& curves) {
  for (const MemoryCurve& curve : curves)
    if (curve.space == ir::Space::host) return &curve;
  return nullptr;
}

int64_t most_of(const MemoryCurve& curve, MemoryKind kind) {
  int64_t most = 0;
  for (const simulate::BytesOfKinds& bytes : curve.bytes) most = std::max(most, bytes[static_cast<size_t>(kind)]);
  return most;
}

void expect_measured_as_predicted(const plan::Plan& plan) {
  const model::ModelConfig c = tiny_model();
  TinyRun run(c, plan, "reference", 1 << 23, 1, false);
  fill(run, c, 3);
  std::vector<Batch> batches = tiny_batches(c, run.plan(), 3);
  for (Batch& batch : batches) {
    batch.hyper = {0, 0.1, 0.05};  // each step routes as the one before
  }
  RowsSeen rows;
  rows.run(run, batches);
  MemoryLog log(run.lowered().program, 0);
  ir::Walk& walk = run.executor(0).walk();
  walk.watcher = &log;
  run.run(batches);
  walk.watcher = nullptr;
  const std::vector<MemoryCurve> measured = log.curves(ordinal, 1e9), said = predicted(run, rows.read());
  ASSERT_EQ(measured.size(), said.size());
  for (size_t i = 0; i < said.size(); ++i) {
    EXPECT_EQ(measured[i].bytes, said[i].bytes);
    EXPECT_EQ(measured[i].peak.bytes, walk.storage(said[i].space).peak_live_bytes());
    EXPECT_EQ(sum_of(measured[i].peak.of_kinds), measured[i].peak.bytes);
  }
}

TEST(MemoryLog, WhatRanIsWhatWasPredicted) {
  expect_measured_as_predicted(tiny_plan(1, 1, true));
  expect_measured_as_predicted(tiny_plan(2, 2, false));
  plan::Plan plan = tiny_plan(1, 1, true);
  plan.memory.optimizer = plan::StateResidency::swap;
  plan.memory.offload = passes::offload_groups("input,layer");
  expect_measured_as_predicted(plan);
}

TEST(MemoryLog, ValuesAtThePeakMakeUpThePeak) {
  const model::ModelConfig c = tiny_model();
  TinyRun run(c, tiny_plan(2, 1, true, 4), "reference", 1 << 23, 1, false);
  const MemoryCurve curve = predicted(run)[0];
  ASSERT_FALSE(curve.peak.values.empty());
  EXPECT_TRUE(std::is_sorted(curve.peak.values.begin(), curve.peak.values.end(),
                             [](const auto& a, const auto& b) { return a.bytes > b.bytes; }));
  // The first of two stages holds two microbatches under 1F1B when it holds most.
  EXPECT_EQ(curve.peak.microbatches.size(), 2u);
  int64_t activations = 0, in_flight = 0;
  for (size_t k = 0; k < curve.peak.of_kinds.size(); ++k)
    if (is_activation(static_cast<MemoryKind>(k))) activations += curve.peak.of_kinds[k];
  for (const auto& m : curve.peak.microbatches) in_flight += m.bytes;
  EXPECT_EQ(in_flight, activations);
}

TEST(MemoryLog, KindsAreThoseOfTheProgram) {
  const model::ModelConfig c = tiny_model();
  plan::Plan plan = tiny_plan(1, 1, true);
  TinyRun kept(c, plan, "reference", 1 << 23, 1, false);
  const std::vector<MemoryCurve> all = predicted(kept);
  ASSERT_EQ(all.size(), 1u) << "nothing lies on the host";
  for (const MemoryKind kind :
       {MemoryKind::weights, MemoryKind::weight_gradients, MemoryKind::optimizer, MemoryKind::between,
        MemoryKind::attention, MemoryKind::feed_forward, MemoryKind::outside, MemoryKind::gradients})
    EXPECT_GT(most_of(all[0], kind), 0) << word_of(kind);
  EXPECT_EQ(most_of(all[0], MemoryKind::in_flight), 0);
  plan.memory.optimizer = plan::StateResidency::swap;
  TinyRun swapped(c, plan, "reference", 1 << 23, 1, false);
  const std::vector<MemoryCurve> away = predicted(swapped);
  const MemoryCurve* host = on_host(away);
  ASSERT_NE(host, nullptr);
  EXPECT_GT(most_of(away[0], MemoryKind::in_flight), 0) << "the slots";
  EXPECT_LT(most_of(away[0], MemoryKind::optimizer), most_of(all[0], MemoryKind::optimizer));
  EXPECT_GT(most_of(*host, MemoryKind::optimizer), 0);
}

TEST(MemoryLog, ThinnedKeepsThePeak) {
  const model::ModelConfig c = tiny_model();
  TinyRun run(c, tiny_plan(1, 1, true, 4), "reference", 1 << 23, 1, false);
  const MemoryCurve curve = predicted(run)[0], thin = thinned(curve, 16);
  EXPECT_LE(thin.at_us.size(), 16u);
  int64_t most = 0;
  for (const simulate::BytesOfKinds& bytes : thin.bytes) most = std::max(most, sum_of(bytes));
  EXPECT_EQ(most, curve.peak.bytes);
  EXPECT_TRUE(std::is_sorted(thin.at_us.begin(), thin.at_us.end()));
}

}  // namespace
}  // namespace heddle::test
