// Recomputation chosen stage by stage: against trying all choices, and against the best that is alike on all
// stages.
#include "heddle/search/stage_keeping.h"

#include <gtest/gtest.h>

#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/search.h"

namespace heddle::search {
namespace {

Job deepseek_stage_keeping(int pp, Pipeline pipeline) {
  Job j;
  j.shape = *model::find_shape("DeepSeek-V3");
  j.device = *cost::accelerator_named("H800");
  j.mesh = {.dp = 64, .pp = pp, .ep = 64};
  j.global_batch = 64 * 6 * pp;
  j.pipeline = pipeline;
  return j;
}

const std::vector<Keeping>& three_ways() {
  static const std::vector<Keeping> ways{
      {{}, false}, {{GroupName::norm, GroupName::activation}, false}, {{GroupName::layer}, false}};
  return ways;
}

TEST(StageKeeping, IsNearTheBestOfAllChoices) {
  for (const Pipeline pipeline : {one_f_one_b(), schedule::find_pipeline("zb_h1")}) {
    const Job job = deepseek_stage_keeping(4, pipeline);
    const PreparedSchedule prepared(job);
    const schedule::Placement& place = prepared.schedule.placement;
    const StageCosts costs(job, {}, three_ways());
    const double light = exact_by_stage(job, {}, prepared, std::vector<Keeping>(4, three_ways()[0]),
                                        costs.spread(place, {0, 0, 0, 0}))
                             .peak_bytes,
                 heavy = exact_by_stage(job, {}, prepared, std::vector<Keeping>(4, three_ways()[2]),
                                        costs.spread(place, {2, 2, 2, 2}))
                             .peak_bytes;
    for (const double part : {0.15, 0.4, 0.7, 0.95}) {
      const double limit = heavy + part * (light - heavy);
      double best = 1e300;
      for (int code = 0; code < 81; ++code) {
        const std::vector<int> ways{code % 3, code / 3 % 3, code / 9 % 3, code / 27};
        const Exact e = exact_of(job, {}, prepared, costs.staged(place, ways, costs.spread(place, ways)));
        if (e.peak_bytes <= limit) best = std::min(best, e.step_s);
      }
      const std::optional<KeptByStage> kept = keep_by_stage(job, {}, prepared, three_ways(), limit);
      ASSERT_TRUE(kept.has_value()) << part;
      EXPECT_LE(kept->exact.peak_bytes, limit);
      EXPECT_LE(kept->exact.step_s, best * 1.02) << pipeline->name() << " " << part;
      EXPECT_GE(kept->exact.step_s, unbounded_step_s(job, {}, prepared, three_ways()) * 0.99);
    }
    EXPECT_FALSE(keep_by_stage(job, {}, prepared, three_ways(), heavy / 4).has_value());
  }
}

TEST(StageKeeping, EarlyStagesGiveUpMore) {
  const Job job = deepseek_stage_keeping(8, one_f_one_b());
  const PreparedSchedule prepared(job);
  const auto alike = [&](const Keeping& keeping) {
    Job j = job;
    j.recompute = keeping.recompute;
    return exact_of(j, {}, prepared);
  };
  const double limit = 0.7 * alike(three_ways()[2]).peak_bytes + 0.3 * alike(three_ways()[0]).peak_bytes;
  double best = 1e300;
  for (const Keeping& keeping : three_ways())
    if (const Exact e = alike(keeping); e.peak_bytes <= limit) best = std::min(best, e.step_s);
  const std::optional<KeptByStage> kept = keep_by_stage(job, {}, prepared, three_ways(), limit);
  ASSERT_TRUE(kept.has_value());
  const StageCosts costs(job, {}, three_ways());
  EXPECT_LT(costs.kept_bytes(kept->way_of_stage.front()), costs.kept_bytes(kept->way_of_stage[6]));
  EXPECT_LT(kept->exact.step_s, 0.98 * best);
}

Query small_query_stage_keeping() {
  Query q;
  q.space.job = deepseek_stage_keeping(8, nullptr);
  q.space.devices = 512;
  q.space.restriction.set("microbatch=1");
  q.space.restriction.set("offload=0");
  q.space.restriction.set("schedule=1f1b,zb_v");
  q.memory_bytes = 60e9;
  q.short_list = 60;
  return q;
}

TEST(StageKeeping, TheSearchIsNeverSlowerForIt) {
  Query q = small_query_stage_keeping();
  const Answer free = search(q);
  q.space.restriction.set("by_stage=0");
  const Answer alike = search(q);
  ASSERT_FALSE(free.top.empty());
  ASSERT_FALSE(alike.top.empty());
  EXPECT_EQ(alike.by_stage, 0u);
  EXPECT_GT(free.by_stage, 0u);
  EXPECT_LE(free.top.front().exact.step_s, alike.top.front().exact.step_s);
  bool any = false;
  for (const Ranked& r : free.top) {
    EXPECT_LE(r.exact.peak_bytes, free.memory_bytes);
    if (r.by_stage.empty()) continue;
    any = true;
    EXPECT_EQ(r.by_stage.size(), r.exact.layers.size());
  }
  EXPECT_TRUE(any);
  for (const Ranked& r : alike.top) EXPECT_TRUE(r.by_stage.empty());
}

}  // namespace
}  // namespace heddle::search
