// Gradients and weights cut among copies, as a dimension of the search: bytes as the engine's program has them,
// messages, and where a search takes them.
#include "heddle/search/plans/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/config/run_config.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/block_work.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/search.h"
#include "tests/search/lowered_query.h"

namespace heddle::search {
namespace {

using passes::Shard;

Job job_of_sharding(const plan::Degrees& mesh, const Sharding& sharding = {}) {
  Job j = job_of_lowered(v2_lite(), "H100");
  j.mesh = mesh;
  j.sharding = sharding;
  return j;
}

const std::vector<Sharding> kAll{
    {}, {Shard::gradients, 8}, {Shard::weights, 8}, {Shard::gradients}, {Shard::weights}};

// Weights, sums and state of the engine's program of one rank.
double persistent_bytes(const Job& j) {
  plan::Plan plan = plan_in_bf16();
  static_cast<plan::Degrees&>(plan.mesh) = j.mesh;
  plan.parallel.shard = j.sharding.shard;
  plan.parallel.shard_ranks = j.sharding.ranks;
  plan.microbatches = 2 * j.mesh.pp;
  plan.sequence_length = 256;
  const plan::Lowered lowered = plan::lower(v2_lite(), plan);
  const ir::Listing& listing = lowered.program.listings.at(0);
  double bytes = 0;
  for (size_t id = 0; id < listing.values.size(); ++id) {
    const ir::Value& v = listing.values[id];
    const bool lasts =
        v.role == ir::Role::weight || v.role == ir::Role::accumulator || v.role == ir::Role::optimizer;
    if (lasts && v.space == ir::Space::device && v.part_of == ir::none)
      bytes += static_cast<double>(listing.bytes(static_cast<ir::ValueId>(id), ir::FixedRows()));
  }
  return bytes;
}

double estimated_bytes(const Job& j) {
  const model::Parameters p = model::parameters_of(j.shape);
  const MemoryParts parts = memory_parts(j, p, layers_of(j, prices_of(j, p, {}), {}));
  return static_cast<double>(j.shape.num_hidden_layers) * parts.mean.fixed + parts.embedding_fixed +
         parts.head_fixed;
}

TEST(Sharding, BytesAreThoseOfTheProgram) {
  for (const plan::Degrees& mesh : {plan::Degrees{.dp = 16}, plan::Degrees{.tp = 2, .dp = 8, .ep = 4},
                                    plan::Degrees{.dp = 16, .ep = 8, .etp = 2}}) {
    double before = 1e18;
    for (const Sharding& sharding : kAll) {
      const Job j = job_of_sharding(mesh, sharding);
      const double program = persistent_bytes(j), estimated = estimated_bytes(j);
      EXPECT_NEAR(estimated / program, 1, 0.1)
          << text_of(sharding) << ", tp " << mesh.tp << " ep " << mesh.ep << " etp " << mesh.etp;
      if (sharding.ranks == 0) {
        EXPECT_LT(program, before);
        before = program;
      }
    }
  }
}

TEST(Sharding, GoesWhereTheEngineTakesIt) {
  EXPECT_FALSE(shards(job_of_sharding({.dp = 16})));
  EXPECT_TRUE(shards(job_of_sharding({.dp = 16}, {Shard::weights})));
  EXPECT_TRUE(shards(job_of_sharding({.dp = 16}, {Shard::weights, 8})));
  EXPECT_FALSE(shards(job_of_sharding({.dp = 16}, {Shard::weights, 16})));  // as 0
  EXPECT_FALSE(shards(job_of_sharding({.dp = 12}, {Shard::weights, 8})));
  EXPECT_FALSE(shards(job_of_sharding({.tp = 3, .dp = 8}, {Shard::weights, 8})));
  EXPECT_FALSE(shards(job_of_sharding({.tp = 8, .ep = 8}, {Shard::weights})));  // no copies
  Job two = job_of_sharding({.dp = 8, .pp = 4, .ep = 8}, {Shard::weights});
  two.pipeline = schedule::find_pipeline("dual_pipe_v");
  EXPECT_TRUE(shards(two));
  two.pipeline = schedule::find_pipeline("dual_pipe");
  EXPECT_FALSE(sharding_goes(two));
  EXPECT_EQ(normalized(launch_of(job_of_sharding({.dp = 16}, {Shard::weights, 16}))).job.sharding,
            Sharding{Shard::weights});
  EXPECT_EQ(normalized(launch_of(job_of_sharding({.tp = 8, .ep = 8}, {Shard::weights}))).job.sharding, Sharding{});
}

TEST(Sharding, MessagesMoveIntoTheMicrobatches) {
  const auto data_of = [](const Job& j, bool backward) {
    const Prices prices = prices_of(j, model::parameters_of(j.shape), {});
    return backward ? prices.moe.backward.data : prices.moe.forward.data;
  };
  const plan::Degrees mesh{.dp = 64, .ep = 8};
  const Job state = job_of_sharding(mesh), gradients = job_of_sharding(mesh, {Shard::gradients}),
            weights = job_of_sharding(mesh, {Shard::weights}), inside = job_of_sharding(mesh, {Shard::weights, 8});
  EXPECT_EQ(data_of(state, false) + data_of(state, true), 0);
  EXPECT_EQ(data_of(gradients, false), 0);
  EXPECT_GT(data_of(gradients, true), 0);
  EXPECT_GT(data_of(weights, false), 0);
  EXPECT_GT(data_of(weights, true), data_of(gradients, true));
  EXPECT_LT(data_of(inside, true), data_of(weights, true));  // experts stay whole, the rest keeps to NVLink
  const auto end_of = [](const Job& j) { return end_messages(j, {}, 1e9, 1e9); };
  EXPECT_GT(end_of(state).sums_s, 0);
  EXPECT_EQ(end_of(gradients).sums_s, 0);
  EXPECT_EQ(end_of(gradients).gathers_s, end_of(state).gathers_s);
  EXPECT_EQ(end_of(weights).gathers_s, 0);
  EXPECT_GT(end_of(inside).sums_s, 0);
  EXPECT_LT(end_of(inside).sums_s, end_of(state).sums_s);
  // More microbatches are more messages.
  Job few = job_of_sharding({.dp = 64}, {Shard::weights}), many = few;
  few.global_batch = 64, many.global_batch = 512;
  EXPECT_NEAR(estimate(many).time.data / estimate(few).time.data, 8, 1e-6);
}

Query query_of_sharding(const LoweredBlocks* blocks) {
  Query q = query_of_lowered(job_of_sharding({}), blocks,
                             {"tp=1", "cp=1", "ep=1", "etp=1", "microbatch=1", "pp=1,2", "by_stage=0"});
  q.space.restriction.shardings = blocks != nullptr;
  return q;
}

TEST(Sharding, IsTakenWhereStateAloneDoesNotFit) {
  const LoweredBlocks blocks(v2_lite(), plan_in_bf16());
  Query any = query_of_sharding(&blocks), state = any;
  state.space.restriction.set("shard=state");
  any.memory_bytes = 1e15;
  for (const Ranked& r : search(any).top) EXPECT_EQ(r.job.sharding, Sharding{});
  const double with = least_gib(any), without = least_gib(state);
  EXPECT_LT(with, without - 2);
  any.memory_bytes = with * (1 << 30);
  const Answer found = search(any);
  EXPECT_NE(text_of(found.top.front().job.sharding), "");
  // Where both fit, no search with more to choose from is slower.
  any.memory_bytes = state.memory_bytes = (without + 1) * (1 << 30);
  EXPECT_LE(search(any).top.front().exact.step_s, search(state).top.front().exact.step_s * (1 + 1e-9));
}

TEST(Sharding, RestrictionsHold) {
  const LoweredBlocks blocks(v2_lite(), plan_in_bf16());
  Query q = query_of_sharding(&blocks);
  q.space.restriction.set("shard=weights");
  q.space.restriction.set("shard_ranks=8");
  q.memory_bytes = 1e15;
  const Answer found = search(q);
  ASSERT_FALSE(found.top.empty());
  for (const Ranked& r : found.top) {
    EXPECT_EQ(r.job.sharding.shard, Shard::weights);
    EXPECT_EQ(r.job.sharding.ranks, 8);
    EXPECT_EQ(pipeline_of(r.job)->routes() == 1 || r.job.mesh.pp == 1, true);
  }
  EXPECT_THROW(q.space.restriction.set("shard=zero3"), ConfigError);
  EXPECT_THROW(q.space.restriction.set("shard_ranks=-1"), ConfigError);
  Query other = query_of_sharding(nullptr);
  EXPECT_NO_THROW(search(other));
  other.space.restriction.set("shard=weights");
  EXPECT_THROW(search(other), ConfigError);
}

}  // namespace
}  // namespace heddle::search
