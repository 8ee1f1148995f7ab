// A step timed block by block: its sums where nothing waits, the bubble of a pipeline, and what hides behind what.
#include "heddle/simulate/block_times.h"

#include <gtest/gtest.h>

#include "tests/runtime/kept_bits.h"

namespace heddle::simulate {
namespace {

plan::Lowered lowered_of(const plan::Plan& plan) { return plan::lower(test::small(), plan); }

// Every op of the computation lasts as long, everything else `other_us`.
passes::Durations alike(double other_us) {
  return [other_us](const ir::Listing&, const ir::Op& op) {
    return op.def->stream == ir::StreamKind::compute ? 1.0 : other_us;
  };
}

double ops_of(const plan::Lowered& lowered, int rank, bool once) {
  double ops = 0;
  for (const ir::Op& op : lowered.program.listings[static_cast<size_t>(rank)].ops)
    ops += ir::once_a_step(op.phase) == once && op.def->stream == ir::StreamKind::compute && !op.def->drops;
  return ops;
}

TEST(BlockTimes, OfOneRankAddUp) {
  const plan::Lowered lowered = lowered_of(test::plan_of_four({}));
  const BlockTimes times = time_blocks(lowered.program, alike(0));
  EXPECT_DOUBLE_EQ(times.step_us, 4 * ops_of(lowered, 0, false) + ops_of(lowered, 0, true));
}

TEST(BlockTimes, HaveThePipelinesBubble) {
  plan::Plan plan = test::plan_of_four({.pp = 2});
  plan.parallel.weave = plan::Weave::off;
  const plan::Lowered lowered = lowered_of(plan);
  const BlockTimes times = time_blocks(lowered.program, alike(0));
  const double busiest = std::max(times.busy_us[0], times.busy_us[1]);
  EXPECT_GT(times.step_us - times.end_us, 1.05 * busiest) << "a rank waits for the other's first and last";
  EXPECT_LT(times.step_us - times.end_us, 1.35 * busiest);
  EXPECT_GT(time_blocks(lowered.program, alike(20)).step_us, times.step_us + 4 * 20);
}

TEST(BlockTimes, TakeCopiesBesideTheComputation) {
  plan::Plan plan = test::plan_of_four({});
  plan.memory.optimizer = plan::StateResidency::swap;
  const plan::Lowered lowered = lowered_of(plan);
  const double none = time_blocks(lowered.program, alike(0)).step_us;
  EXPECT_GT(time_blocks(lowered.program, alike(5)).step_us, none);
}

}  // namespace
}  // namespace heddle::simulate
