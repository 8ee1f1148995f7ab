#include "heddle/search/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "heddle/base/error.h"
#include "heddle/search/search.h"
#include "tests/support/published_job.h"

namespace heddle::search {
namespace {

Job deepseek() { return job_of("DeepSeek-V3", "H800", {.dp = 128, .pp = 16, .ep = 64}, 1, 15360, 2); }

TEST(Explain, PartsAddUp) {
  for (const Job& j : {deepseek(), job_of("Llama-3.1-405B", "H100", {.tp = 8, .dp = 8, .pp = 16}, 1, 512),
                       job_of("Llama-3-8B", "H100", {.dp = 8}, 1, 128)}) {
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
      explain(launch_of(job_of("Llama-3-8B", "H100", {.dp = 8}, 2, 128)), {.memory_bytes = 1e12});
  EXPECT_EQ(dense.binding, "matrix products");
  EXPECT_LT(dense.sensitivities[3].weight(), 0.01);
  // Few microbatches on many ranks are bound by the bubble.
  const Explanation bubble = explain(launch_of(job_of("Llama-3-70B", "H100", {.tp = 2, .dp = 2, .pp = 16}, 1, 16)),
                                     {.memory_bytes = 1e12});
  EXPECT_EQ(bubble.binding, "the pipeline's bubble");
}

TEST(Explain, NeighboursAreWholeJobsAndSayWhy) {
  const Job j = deepseek();
  const Explanation x = explain(launch_of(j));
  EXPECT_GT(x.neighbours.size(), 10u);
  for (const Neighbour& n : x.neighbours) {
    EXPECT_FALSE(n.why.empty()) << n.change;
    if (!n.reason.empty()) continue;
    const Job& job = n.launch.job;
    const plan::Degrees& l = job.mesh;
    EXPECT_EQ(job.mesh.ranks(), j.mesh.ranks()) << n.change;
    EXPECT_EQ(job.global_batch % (l.dp * job.microbatch), 0) << n.change;
    EXPECT_EQ(n.ratio, PlanTimer().timed(n.launch).exact.step_s / x.plan.exact.step_s);
    EXPECT_EQ(!n.fits, n.why.starts_with("needs ")) << n.why;
  }
  // Small memory: what doesn't fit is told with what to do about it.
  const Explanation tight = explain(launch_of(j), {.memory_bytes = x.plan.exact.peak_bytes * 0.9});
  EXPECT_EQ(tight.binding, "memory");
  ASSERT_FALSE(tight.remedies.empty());
  for (const Remedy& r : tight.remedies) {
    EXPECT_GT(r.frees_bytes, 0) << r.what;
    EXPECT_NEAR(PlanTimer().timed(with_job(x.launch, r.job)).exact.peak_bytes,
                x.plan.exact.peak_bytes - r.frees_bytes, 1)
        << r.what;
  }
  EXPECT_LE(tight.remedies.front().peak_bytes, tight.memory_bytes);
}

// What stands otherwise in two launches, by name; degrees that must follow another one count with it.
std::vector<std::string> differences(const Launch& a, const Launch& b) {
  std::vector<std::string> all;
  const auto differ = [&](const char* what, bool otherwise) {
    if (otherwise) all.emplace_back(what);
  };
  const plan::Degrees &x = a.job.mesh, &y = b.job.mesh;
  const Software &s = a.job.software, &t = b.job.software;
  const bool stages = x.pp != y.pp || a.job.chunks != b.job.chunks;
  differ("tp", x.tp != y.tp);
  differ("cp", x.cp != y.cp);
  differ("stages", stages);
  differ("etp", x.etp != y.etp);
  differ("ep", x.ep != y.ep && x.tp == y.tp && x.cp == y.cp && !stages && x.etp == y.etp);
  differ("microbatch", a.job.microbatch != b.job.microbatch);
  differ("recompute", a.job.recompute != b.job.recompute);
  differ("exchange overlap", s.overlap_exchange != t.overlap_exchange && !stages);
  differ("schedule", a.schedule != b.schedule && !stages && s.overlap_exchange == t.overlap_exchange);
  differ("dispatcher", once_a_node(a.job) != once_a_node(b.job));
  differ("states", s.sharded_states != t.sharded_states);
  differ("residency", a.job.residency != b.job.residency);
  differ("layers", !stages && a.layout != b.layout);
  differ("kept by stage", !stages && a.job.recompute == b.job.recompute && a.by_stage != b.by_stage);
  // And nothing else at all.
  Job rest = b.job;
  rest.mesh = x, rest.chunks = a.job.chunks, rest.microbatch = a.job.microbatch, rest.recompute = a.job.recompute;
  rest.pipeline = a.job.pipeline, rest.residency = a.job.residency;
  rest.software.overlap_exchange = s.overlap_exchange, rest.exchange.topology = a.job.exchange.topology;
  rest.software.sharded_states = s.sharded_states, rest.software.reduce_scatter = s.reduce_scatter;
  differ("something else", !(rest == a.job));
  return all;
}

TEST(Explain, NeighboursChangeOneThing) {
  Job job = deepseek();
  job.mesh = {.dp = 8, .pp = 8, .ep = 8};
  job.chunks = 1;
  job.global_batch = 512;
  job.pipeline = nullptr;
  job.software.sharded_states = job.software.reduce_scatter = false;
  const Launch spread = launch_of(job), given = launch_of(job, {9, 8, 8, 8, 8, 8, 7, 5});
  Launch by_stage = spread;
  for (const int layers : layers_of_stages(job)) {
    by_stage.by_stage.push_back({layers, {}, false});
    by_stage.by_stage.back().recompute.set(GroupName::norm, layers > 7);
  }
  for (const Launch& launch : {spread, given, by_stage}) {
    const Explanation x = explain(launch, {.memory_bytes = 1e13});
    std::set<std::string> changed;
    for (const Neighbour& n : x.neighbours) {
      const std::vector<std::string> all = differences(launch, n.launch);
      EXPECT_EQ(all.size(), 1u) << n.change << ": " << fmt::format("{}", fmt::join(all, ", "));
      changed.insert(all.begin(), all.end());
      if (!n.reason.empty() || n.launch.job.mesh.pp != 8 || n.launch.job.chunks != 1) continue;
      EXPECT_EQ(n.exact.layers, x.plan.exact.layers) << n.change;
    }
    EXPECT_GE(changed.size(), 8u);
    // One that the schedule has no room for is said to be impossible, not replaced by another plan.
    const auto overlap = std::find_if(x.neighbours.begin(), x.neighbours.end(), [](const Neighbour& n) {
      return n.change.starts_with("overlap of the exchange");
    });
    ASSERT_NE(overlap, x.neighbours.end());
    EXPECT_NE(overlap->reason.find("two chunks"), std::string::npos);
  }
}

TEST(Explain, ImpossibleJobsAreRefused) {
  Job j = deepseek();
  j.mesh.dp = 3;
  EXPECT_THROW(explain(launch_of(j)), ConfigError);
}

}  // namespace
}  // namespace heddle::search
