#include "heddle/search/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/search/search.h"

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

Job deepseek() { return job_of("DeepSeek-V3", "H800", {2048, 1, 16, 2, 1, 128, 64, 1}, 1, 15360); }

TEST(Explain, PartsAddUp) {
  for (const Job& j : {deepseek(), job_of("Llama-3.1-405B", "H100", {1024, 8, 16, 1, 1, 8, 1, 1}, 1, 512),
                       job_of("Llama-3-8B", "H100", {8, 1, 1, 1, 1, 8, 1, 1}, 1, 128)}) {
    const Explanation x = explain(launch_of(j));
    double step = 0, memory = 0;
    for (const StepPart& p : x.parts) step += p.seconds;
    for (const MemoryPart& p : x.memory) memory += p.bytes;
    EXPECT_TRUE(x.plan.run) << x.plan.untimed;
    EXPECT_NEAR(step, x.plan.exact.step_s, 1e-9 * step);
    EXPECT_NEAR(memory, x.plan.exact.peak_bytes, 1e-6 * memory);
    EXPECT_EQ(x.fits, x.plan.exact.peak_bytes <= j.device.memory_bytes);
    for (const StepPart& p : x.parts) EXPECT_GE(p.seconds, 0) << p.name;
  }
}

// What the search has ranked by is what is explained: the same layers and ways of keeping, timed once more.
TEST(Explain, TellsOfAPlanWhatTheSearchHasFound) {
  Query query;
  query.space.job = job_of("DeepSeek-V2-Lite", "H800", {}, 1, 256);
  query.space.devices = 32;
  query.memory_bytes = 20.0 * (1 << 30);
  query.space.restriction.set("pp=4");
  query.space.restriction.set("microbatch=1,2");
  query.top = 8;
  const Answer answer = search(query);
  ASSERT_FALSE(answer.top.empty());
  bool by_stage = false;
  for (const Ranked& r : answer.top) {
    const Explanation x = explain(launch_of(r), {.memory_bytes = answer.memory_bytes});
    EXPECT_EQ(x.plan.exact.step_s, r.exact.step_s) << r.schedule;
    EXPECT_EQ(x.plan.exact.peak_bytes, r.exact.peak_bytes) << r.schedule;
    EXPECT_EQ(x.plan.exact.layers, r.exact.layers) << r.schedule;
    EXPECT_TRUE(x.fits) << r.schedule;
    by_stage |= !r.by_stage.empty();
  }
  EXPECT_TRUE(by_stage) << "none of the plans keeps by stage";
}

// Only what lies on the fullest rank is in its memory: DeepSeek-V3's dense layers are on the first one.
TEST(Explain, MemoryIsOfTheFullestRanksOwnLayers) {
  const Explanation x = explain(launch_of(deepseek()));
  ASSERT_TRUE(x.plan.run);
  const auto& place = x.plan.run->prepared->schedule.placement;
  const std::vector<int>& layers = x.plan.exact.layers;
  int64_t dense = 0;
  for (const int stage : place.stages_of(x.plan.run->fullest_rank)) {
    int64_t before = 0;
    for (int s = 0; s < stage; ++s) before += layers[static_cast<size_t>(s)];
    dense += std::clamp<int64_t>(3 - before, 0, layers[static_cast<size_t>(stage)]);
  }
  const bool told = std::any_of(x.memory.begin(), x.memory.end(),
                                [](const MemoryPart& p) { return p.name == "dense layers' activations"; });
  EXPECT_EQ(told, dense > 0);
}

TEST(Explain, SlowerPartsNeverHelp) {
  const Explanation x = explain(launch_of(deepseek()));
  for (const Sensitivity& s : x.sensitivities) {
    if (s.what.starts_with("imbalance")) continue;
    EXPECT_GE(s.less, 1) << s.what;
    EXPECT_LE(s.more, 1) << s.what;
    // A step goes with what it is made of, not beyond.
    EXPECT_LE(s.less, 1 / 0.8) << s.what;
    EXPECT_GE(s.more, 1 / 1.2) << s.what;
    EXPECT_LE(s.weight(), 1) << s.what;
  }
  // A dense model in one node doesn't know the network between nodes beyond its gradients; its products bind it.
  const Explanation dense =
      explain(launch_of(job_of("Llama-3-8B", "H100", {8, 1, 1, 1, 1, 8, 1, 1}, 2, 128)), {.memory_bytes = 1e12});
  EXPECT_EQ(dense.binding, "matrix products");
  EXPECT_LT(dense.sensitivities[3].weight(), 0.01);
  // Few microbatches on many ranks are bound by the bubble.
  const Explanation bubble =
      explain(launch_of(job_of("Llama-3-70B", "H100", {64, 2, 16, 1, 1, 2, 1, 1}, 1, 16)), {.memory_bytes = 1e12});
  EXPECT_EQ(bubble.binding, "the pipeline's bubble");
}

TEST(Explain, NeighboursAreWholeJobsAndSayWhy) {
  const Job j = deepseek();
  const Explanation x = explain(launch_of(j));
  EXPECT_GT(x.neighbours.size(), 10u);
  for (const Neighbour& n : x.neighbours) {
    EXPECT_FALSE(n.why.empty()) << n.change;
    if (!n.reason.empty()) continue;
    const Layout& l = n.job.layout;
    EXPECT_EQ(l.tp * l.cp * l.pp * l.dp, l.devices) << n.change;
    EXPECT_EQ(n.job.global_batch % (l.dp * n.job.microbatch), 0) << n.change;
    EXPECT_EQ(n.ratio, exact_of(n.job).step_s / x.plan.exact.step_s);
    EXPECT_EQ(!n.fits, n.why.starts_with("needs ")) << n.why;
  }
  // Small memory: what doesn't fit is told with what to do about it.
  const Explanation tight = explain(launch_of(j), {.memory_bytes = x.plan.exact.peak_bytes * 0.9});
  EXPECT_EQ(tight.binding, "memory");
  ASSERT_FALSE(tight.remedies.empty());
  for (const Remedy& r : tight.remedies) {
    EXPECT_GT(r.frees_bytes, 0) << r.what;
    EXPECT_NEAR(exact_of(r.job).peak_bytes, x.plan.exact.peak_bytes - r.frees_bytes, 1) << r.what;
  }
  EXPECT_LE(tight.remedies.front().peak_bytes, tight.memory_bytes);
}

TEST(Explain, IntervalsWidenWithDistance) {
  const Calibration& c = Calibration::built_in();
  const ScaleInterval near = c.interval(*cost::accelerator_named("H100"), cost::Precision::fp8),
                      far = c.interval(*cost::accelerator_named("Ascend-910B"), cost::Precision::bf16);
  for (const ScaleInterval& i : {near, far}) {
    EXPECT_LT(i.low, i.scale);
    EXPECT_GT(i.high, i.scale);
    EXPECT_FALSE(i.from.empty());
  }
  EXPECT_GT(far.high / far.low, near.high / near.low);
}

TEST(Explain, ImpossibleJobsAreRefused) {
  Job j = deepseek();
  j.layout.dp = 3;
  EXPECT_THROW(explain(launch_of(j)), ConfigError);
}

}  // namespace
}  // namespace heddle::search
