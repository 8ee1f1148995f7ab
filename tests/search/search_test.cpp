// The space of plans, the closed forms of pipelines against the schedules themselves, and the search over both.
#include "heddle/search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/schedule/generators/generators.h"
#include "heddle/search/block_work.h"
#include "tests/support/same_answer.h"

namespace heddle::search {
namespace {

Space space_of(const char* model, const char* device, int devices, int batch, double sequence = 4096) {
  Space s;
  s.job.shape = *model::find_shape(model);
  s.job.device = *cost::accelerator_named(device);
  s.job.global_batch = batch;
  s.job.sequence = sequence;
  s.devices = devices;
  return s;
}

TEST(Space, LayoutsDivideRanksAndRestrictionsHold) {
  Space s = space_of("DeepSeek-V3", "H800", 960, 960);
  s.restriction.set("pp=1,2,3,4,5,6,8,15,16");
  s.restriction.set("tp=1,2,4");
  s.restriction.set("schedule=1f1b,interleaved,zb_v,dual_pipe");
  std::set<int> stages, tensors;
  uint64_t count = 0;
  for (const Family& f : families(s)) {
    Job j = s.job;
    for_each_layout(s, f, j, [&] {
      const plan::Degrees& l = j.mesh;
      ++count;
      ASSERT_EQ(static_cast<int64_t>(l.tp) * l.cp * l.dp * l.pp, 960);
      ASSERT_EQ(l.tp * l.cp * l.dp % (l.ep * l.etp), 0);
      ASSERT_EQ(256 % l.ep, 0);
      ASSERT_EQ(960 % (l.dp * j.microbatch), 0);
      ASSERT_NE(j.pipeline, schedule::find_pipeline("zb_h1"));
      ASSERT_FALSE(j.pipeline == schedule::find_pipeline("dual_pipe") && l.ep == 1);
      ASSERT_EQ(estimate(j).reason, "");
      stages.insert(l.pp);
      tensors.insert(l.tp);
    });
  }
  EXPECT_GT(count, 1000u);
  // By any divisors, also odd ones; TP = 1 with experts apart is among them.
  EXPECT_EQ(stages, (std::set<int>{1, 2, 3, 4, 5, 6, 8, 15, 16}));
  EXPECT_EQ(tensors, (std::set<int>{1, 2, 4}));
}

std::string refused(const char* words) {
  Restriction r;
  try {
    r.set(words);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Space, RestrictionsSayWhatIsWrong) {
  EXPECT_NE(refused("shedule=1f1b").find("did you mean 'schedule'"), std::string::npos);
  EXPECT_NE(refused("schedule=2f2b").find("accepted: gpipe, 1f1b"), std::string::npos);
  EXPECT_NE(refused("tp=0").find("whole numbers from 1"), std::string::npos);
  EXPECT_NE(refused("tp=2,").find("whole numbers from 1"), std::string::npos);
  EXPECT_NE(refused("offload=2").find("0 or 1"), std::string::npos);
  EXPECT_NE(refused("tp").find("NAME=VALUE"), std::string::npos);
  EXPECT_EQ(refused("recompute=norms,full"), "accepted");
  Restriction r;
  r.set("tp=1,2");
  r.set("tp=4");
  EXPECT_EQ(r.tp, std::vector<int>{4});
  Space s = space_of("DeepSeek-V3", "H800", 64, 64);
  s.restriction.set("ep=3");
  EXPECT_THROW(families(s), ConfigError);
}

TEST(Routing, FullestRankIsTheQuantileOfManyDraws) {
  const Routing routing{0.3};
  std::mt19937 rng(1);
  std::normal_distribution<double> share(1, 0.3);
  constexpr int kDraws = 4000;
  for (const int ranks : {4, 16, 64}) {
    std::vector<double> fullest;
    for (int i = 0; i < kDraws; ++i) {
      double most = 0;
      for (int r = 0; r < ranks; ++r) {
        double sum = 0;
        for (int e = 0; e < 256 / ranks; ++e) sum += share(rng);
        most = std::max(most, sum * ranks / 256);
      }
      fullest.push_back(most);
    }
    std::sort(fullest.begin(), fullest.end());
    EXPECT_NEAR(routing.fullest(0.5, 256, ranks), fullest[kDraws / 2], 0.01) << ranks;
    EXPECT_NEAR(routing.fullest(0.99, 256, ranks), fullest[kDraws * 99 / 100], 0.03) << ranks;
  }
  EXPECT_EQ(routing.fullest(0.5, 256, 1), 1);
  EXPECT_EQ(Routing{0}.fullest(0.99, 256, 64), 1);
  // The default is natural routing as published runs show it.
  EXPECT_NEAR(Routing{}.fullest(0.5, 256, 64), 1.15, 0.005);
}

// A schedule that search_test alone has: all forwards, all input gradients, all weight gradients. No formula of it
// is given.
schedule::Schedule weights_last(const schedule::GeneratorOptions& o) {
  schedule::Schedule s{"weights_last", schedule::loop_placement(o.ranks), o.microbatches, {}};
  for (int r = 0; r < o.ranks; ++r) {
    std::vector<schedule::Action>& order = s.order.emplace_back();
    for (const schedule::Kind kind : {schedule::Kind::F, schedule::Kind::I, schedule::Kind::W})
      for (int m = 0; m < o.microbatches; ++m) order.push_back({{kind, r, m}, {}});
  }
  return s;
}

TEST(Search, PricesAScheduleWithoutFormulas) {
  const schedule::Generator row{"weights_last", "", "", 1, false, weights_last};
  const schedule::Pipeline own(row);
  Job j = space_of("Llama-3.1-405B", "H100", 64, 128, 8192).job;
  j.mesh = {.tp = 8, .pp = 8};
  j.pipeline = one_f_one_b();
  const Estimate usual = estimate(j);
  j.pipeline = &own;
  const Estimate e = estimate(j);
  ASSERT_EQ(e.reason, "");
  // Its bubble has no W, and all microbatches are kept.
  EXPECT_LT(e.time.bubble, 0.8 * usual.time.bubble);
  EXPECT_GT(e.time.bubble, 0.5 * usual.time.bubble);
  EXPECT_GT(e.activation_bytes, 10 * usual.activation_bytes);
  const Exact exact = exact_of(j);
  EXPECT_NEAR(exact.step_s, e.step_s, 0.05 * e.step_s);
  EXPECT_NEAR(exact.peak_bytes, e.peak_bytes, 0.05 * e.peak_bytes);
}

Query small_query() {
  Query q;
  q.space = space_of("Qwen3-30B-A3B", "H100", 32, 64);
  q.space.restriction.set("microbatch=1,2");
  q.short_list = 50;
  return q;
}

TEST(Search, IsTheSameOnAnyNumberOfThreads) { expect_same_answer(small_query(), {2, 7}); }

TEST(Search, FindsWhatTryingAllOfThemFinds) {
  Query q = small_query();
  for (const char* words : {"recompute=none,norms", "offload=0", "tp=1,2", "microbatch=2", "vpp=1,2,3"})
    q.space.restriction.set(words);
  q.short_list = 100'000;  // every layout is timed exactly
  const Answer answer = search(q);
  ASSERT_FALSE(answer.top.empty());
  double best = 1e300;
  uint64_t tried = 0;
  for (const Family& f : families(q.space)) {
    Job j = q.space.job;
    for_each_layout(q.space, f, j, [&] {
      j.imbalance = q.space.routing.fullest(0.5, 128, j.mesh.ep);
      j.memory_imbalance = q.space.routing.fullest(0.99, 128, j.mesh.ep);
      for (const bool norms : {false, true}) {
        j.recompute.set(GroupName::norm, norms);
        const Exact e = exact_of(j);
        ++tried;
        // The search passes over what the estimate takes for too large.
        if (e.peak_bytes <= answer.memory_bytes && estimate(j).peak_bytes <= 1.05 * answer.memory_bytes)
          best = std::min(best, e.step_s);
      }
    });
  }
  EXPECT_EQ(tried, answer.plans);
  // Of recomputation levels the estimate's fastest that fits is timed, so that a tie may go the other way.
  EXPECT_NEAR(answer.top.front().exact.step_s, best, 1e-3 * best);
}

TEST(Search, PlansFitAndTheirEstimatesAreNear) {
  Query q;
  q.space = space_of("DeepSeek-V3", "H800", 512, 1920);
  q.space.restriction.set("microbatch=1,2");
  q.top = 40;
  const Answer answer = search(q);
  ASSERT_EQ(answer.top.size(), 40u);
  for (const Ranked& r : answer.top) {
    EXPECT_LE(r.exact.peak_bytes, answer.memory_bytes);
    EXPECT_NEAR(r.estimate.step_s, r.exact.step_s, 0.15 * r.exact.step_s) << r.schedule;
    EXPECT_GE(r.p99_step_s, r.exact.step_s * (1 - 1e-9));
    int layers = 0;
    for (const int n : r.exact.layers) layers += n;
    EXPECT_EQ(layers, 61);
  }
  EXPECT_TRUE(std::is_sorted(answer.top.begin(), answer.top.end(),
                             [](const Ranked& a, const Ranked& b) { return a.exact.step_s < b.exact.step_s; }));
}

TEST(Search, StopsEarlyWithTheBestSoFar) {
  Query q = small_query();
  q.threads = 1;
  int asked = 0;
  const Answer whole = search(q), part = search(q, {}, [&] { return ++asked > 20; });
  EXPECT_TRUE(part.stopped);
  EXPECT_LT(part.plans, whole.plans);
  EXPECT_FALSE(part.top.empty());
}

TEST(Search, SaysWhatLacksLeastWhereNothingFits) {
  Query q;
  q.space = space_of("DeepSeek-V3", "H800", 16, 64);
  const Answer answer = search(q);
  EXPECT_TRUE(answer.top.empty());
  EXPECT_NE(answer.misfit.find("needs"), std::string::npos);
  q.space.job.global_batch = 0;
  EXPECT_THROW(search(q), ConfigError);
}

}  // namespace
}  // namespace heddle::search
