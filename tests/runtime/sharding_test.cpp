// Bytes and messages of gradients and weights that are cut among ranks: as the walk predicts them, and as
// docs/features/sharding.md says.
#include <gtest/gtest.h>

#include "heddle/passes/host/residency_words.h"
#include "tests/runtime/kept_bits.h"

namespace heddle::test {
namespace {

using passes::Shard;

plan::Plan plan_for_sharding(const plan::Degrees& mesh, Shard shard, int ranks = 0,
                             const std::string& schedule = "1f1b") {
  plan::Plan plan = plan_of_four(mesh, schedule);
  plan.parallel.shard = shard;
  plan.parallel.shard_ranks = ranks;
  return plan;
}

TEST(ShardingPeak, IsPredictedToTheByte) {
  expect_peak_as_predicted(small(), plan_for_sharding({.dp = 4}, Shard::weights));
  expect_peak_as_predicted(small(), plan_for_sharding({.tp = 2, .dp = 2, .ep = 4}, Shard::weights));
  expect_peak_as_predicted(small(), plan_for_sharding({.dp = 4, .pp = 2}, Shard::weights, 2, "zb_h1"));
  expect_peak_as_predicted(small(), plan_for_sharding({.dp = 2, .pp = 2}, Shard::gradients));
  plan::Plan host = plan_for_sharding({.dp = 2}, Shard::weights);
  host.memory.weights = host.memory.gradients = passes::residency_groups("all");
  expect_peak_as_predicted(small(), host);
}

// Bytes that persist on rank 0, of a role.
double bytes_of_sharding(const plan::Plan& plan, ir::Role role) {
  model::ModelConfig c = small();
  c.hidden_size = 32;  // beside which vectors are little
  const ir::Listing listing = plan::lower(c, plan).program.listings[0];
  double sum = 0;
  for (ir::ValueId id = 0; id < std::ssize(listing.values); ++id) {
    const ir::Value& value = listing.value(id);
    if (value.role == role && value.space == ir::Space::device && value.name != "rope_table")
      sum += static_cast<double>(listing.bytes(id, ir::FixedRows()));
  }
  return sum;
}

TEST(ShardingBytes, FallWithTheRanksThatShareThem) {
  const auto sums = [](const plan::Plan& plan) { return bytes_of_sharding(plan, ir::Role::accumulator); };
  const auto weights = [](plan::Plan plan) {
    plan.dtype = Dtype::bf16;
    return bytes_of_sharding(plan, ir::Role::weight);
  };
  const double whole = sums(plan_for_sharding({.dp = 8}, Shard::state)),
               held = weights(plan_for_sharding({.dp = 8}, Shard::state));
  for (const int ranks : {2, 4, 8}) {
    const plan::Plan gradients = plan_for_sharding({.dp = 8}, Shard::gradients, ranks);
    const plan::Plan both = plan_for_sharding({.dp = 8}, Shard::weights, ranks);
    EXPECT_LT(sums(gradients), whole / ranks + 0.1 * whole) << ranks;
    EXPECT_EQ(weights(gradients), held) << ranks;
    EXPECT_EQ(sums(both), sums(gradients)) << ranks;
    EXPECT_LT(weights(both), held / ranks + 0.1 * held) << ranks;
  }
  plan::Plan some = plan_for_sharding({.dp = 8}, Shard::weights);
  some.parallel.sharded = passes::part_groups("experts");
  EXPECT_LT(sums(some), 0.9 * whole);
  EXPECT_GT(sums(some), sums(plan_for_sharding({.dp = 8}, Shard::weights)));
}

// Messages of a step by kind and phase, on rank 0.
TEST(ShardingMessages, AreThoseOfAMicrobatch) {
  const auto count = [](const plan::Plan& plan, std::string_view kind, ir::Phase phase) {
    const ir::Listing listing = plan::lower(small(), plan).program.listings[0];
    return std::count_if(listing.ops.begin(), listing.ops.end(),
                         [&](const ir::Op& op) { return op.kind() == kind && op.phase == phase; });
  };
  const plan::Plan state = plan_for_sharding({.dp = 4}, Shard::state),
                   weights = plan_for_sharding({.dp = 4}, Shard::weights);
  EXPECT_EQ(count(state, "gather_rows", ir::Phase::F), 0);
  EXPECT_EQ(count(state, "reduce_gradients", ir::Phase::W), 0);
  EXPECT_GT(count(weights, "gather_rows", ir::Phase::F), 20);
  EXPECT_GT(count(weights, "gather_rows", ir::Phase::I), 15);
  EXPECT_GT(count(weights, "reduce_gradients", ir::Phase::W), 20);
  // Vectors go once a step.
  EXPECT_GT(count(weights, "gather_weights", ir::Phase::begin), 0);
  EXPECT_GT(count(weights, "reduce_gradients", ir::Phase::end), 0);
}

}  // namespace
}  // namespace heddle::test
