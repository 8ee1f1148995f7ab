// Recomputation chosen stage by stage: against trying all choices, against the best that is alike on all stages,
// and as Heddle's configuration says it.
#include "heddle/search/stage_keeping.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/better.h"
#include "heddle/search/launch/emit.h"

namespace heddle::search {
namespace {

Job deepseek(int pp, Pipeline pipeline) {
  Job j;
  j.shape = *model::find_shape("DeepSeek-V3");
  j.device = *cost::accelerator_named("H800");
  j.layout = {64 * pp, 1, pp, 1, 1, 64, 64, 1};
  j.global_batch = 64 * 6 * pp;
  j.pipeline = pipeline;
  return j;
}

const std::vector<Keeping>& three_ways() {
  static const std::vector<Keeping> ways{
      {{}, false}, {{.norms = true, .activations = true}, false}, {{.full = true}, false}};
  return ways;
}

TEST(StageKeeping, IsNearTheBestOfAllChoices) {
  for (const Pipeline pipeline : {one_f_one_b(), schedule::find_pipeline("zb_h1")}) {
    const Job job = deepseek(4, pipeline);
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
  const Job job = deepseek(8, one_f_one_b());
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

Query small_query() {
  Query q;
  q.space.job = deepseek(8, nullptr);
  q.space.devices = 512;
  q.space.restriction.set("microbatch=1");
  q.space.restriction.set("offload=0");
  q.space.restriction.set("schedule=1f1b,zb_v");
  q.memory_bytes = 60e9;
  q.short_list = 60;
  return q;
}

TEST(StageKeeping, TheSearchIsNeverSlowerForIt) {
  Query q = small_query();
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

TEST(StageKeeping, IsSaidByHeddleAndRefusedByOthers) {
  Launch launch = launch_of(deepseek(4, one_f_one_b()), {12, 15, 17, 17});
  launch.by_stage = {{12, {.full = true, .every = 0.5}},
                     {15, {.norms = true, .activations = true}},
                     {17, {.norms = true, .activations = true}},
                     {17, {}}};
  // What is set for a key, "" where it is not.
  const auto set = [&](const std::string& key) {
    for (const std::string& setting : heddle_settings(launch))
      if (setting.starts_with(key + "=")) return setting.substr(key.size() + 1);
    return std::string();
  };
  EXPECT_EQ(set("memory.recompute"), "layer:0-5, norm:12-43, activation:12-43");
  EXPECT_TRUE(refusals_of(launch, "heddle").empty());
  const std::vector<std::string> no = refusals_of(launch, "megatron");
  EXPECT_TRUE(std::any_of(no.begin(), no.end(), [](const std::string& line) {
    return line.find("the same again on all stages") != std::string::npos;
  }));
  launch.by_stage[1].offload = launch.by_stage[2].offload = true;
  EXPECT_EQ(set("memory.offload"), "expert_up:12-43");
  EXPECT_TRUE(refusals_of(launch, "heddle").empty());
  // The last stage's words reach multi-token prediction too.
  ASSERT_EQ(launch.job.shape.mtp, 1);
  launch.by_stage.back() = {17, {.norms = true}};
  EXPECT_TRUE(set("memory.recompute").ends_with(", norm:44-61")) << set("memory.recompute");
  // Alike on all stages, no layers are named.
  launch.by_stage = {{12, {.norms = true}}, {15, {.norms = true}}, {17, {.norms = true}}, {17, {.norms = true}}};
  EXPECT_EQ(set("memory.recompute"), "norm");
  EXPECT_EQ(set("memory.offload"), "");
  launch.by_stage.clear();
  launch.job.recompute = {.full = true};
  launch.job.software.offload_activations = true;
  EXPECT_EQ(set("memory.offload"), "input");
}

TEST(Better, IsFasterSayableAndItsOwnAnswer) {
  Job poor = deepseek(8, one_f_one_b());
  poor.layout = {64, 4, 4, 1, 1, 4, 16, 1};
  poor.shape = *model::find_shape("DeepSeek-V2");
  poor.recompute.full = true;
  const double memory = usable_bytes(poor.device);
  for (const char* target : {"megatron", "heddle"}) {
    const BetterAnswer found = search_better(launch_of(poor), target, memory);
    ASSERT_TRUE(found.best.has_value()) << target;
    EXPECT_LT(found.best->ratio, 0.9);
    EXPECT_FALSE(found.best->changes.empty());
    EXPECT_TRUE(refusals_of(found.best->launch, target).empty()) << target;
    EXPECT_NEAR(found.best->plan.exact.step_s, found.best->ratio * found.given_step_s, 1e-9);
    // Of a plan that it gave, nothing is better, unless stages keep apart, which a job alone can't say.
    if (!found.best->plan.by_stage.empty()) continue;
    EXPECT_FALSE(search_better(found.best->launch, target, memory).best.has_value()) << target;
  }
  EXPECT_THROW(search_better(launch_of(poor), "deepspeed", memory), ConfigError);
}

}  // namespace
}  // namespace heddle::search
