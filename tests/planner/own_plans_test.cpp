#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "heddle/planner/simulated_plans.h"
#include "heddle/search/plans/estimator.h"
#include "heddle/search/plans/fewest.h"
#include "tests/support/published_job.h"
#include "tests/support/same_answer.h"

namespace heddle::planner {
namespace {

struct OwnPlans {
  search::Query query;
  std::unique_ptr<search::LoweredBlocks> blocks;

  // With all choices that Heddle has: homes of the state, shards, replicas of hot experts.
  explicit OwnPlans(double memory_gib) {
    search::Job& j = query.space.job;
    j = search::job_of("DeepSeek-V2-Lite", "H100", {}, 1, 128);
    j.sequence = 4096;
    query.space.devices = 32;
    query.space.restriction.shardings = true;
    query.memory_bytes = memory_gib * (1 << 30);
    blocks = lowered_blocks(j);
    j.software.lowered = blocks.get();
  }
};

std::vector<std::tuple<size_t, int, double>> steps_of(const search::ShortList& list) {
  std::vector<std::tuple<size_t, int, double>> steps;
  for (const search::Candidate& plan : list.plans()) steps.emplace_back(plan.family, plan.serial, plan.best.step_s);
  std::sort(steps.begin(), steps.end());
  return steps;
}

TEST(OwnPlans, AreTheSameOnAnyNumberOfThreads) {
  OwnPlans own(12);
  own.query.short_list = 40;
  search::expect_same_answer(own.query, {2, 5});
}

// State that may lie on the host has to lie somewhere.
TEST(OwnPlans, TooFewDevicesHoldNoState) {
  search::Query q;
  search::Job& j = q.space.job;
  j = search::job_of("DeepSeek-V3", "H100", {}, 1, 128);
  const auto blocks = lowered_blocks(j);
  j.software.lowered = blocks.get();
  EXPECT_TRUE(search::surely_too_few(q, 64));
  q.space.restriction.residencies = true;
  EXPECT_FALSE(search::surely_too_few(q, 64));
  EXPECT_TRUE(search::surely_too_few(q, 8));
  j.device.host_memory_bytes = 0;  // as much as one likes
  EXPECT_FALSE(search::surely_too_few(q, 8));
}

// What is passed over as too slow would not have come among the best.
TEST(OwnPlans, PassesOverWhatIsTooSlow) {
  for (const double memory_gib : {12.0, 20.0, 40.0}) {
    for (const bool lowered : {true, false}) {
      OwnPlans own(memory_gib);
      own.query.short_list = 50;
      if (!lowered) {
        own.query.space.job.software.lowered = nullptr;
        own.query.space.restriction.shardings = false;
      }
      const search::Task task = search::task_of(own.query);
      search::Estimator whole(task), quick(task);
      for (size_t i = 0; i < task.families.size(); ++i) {
        whole.family(i);
        quick.family(i);
        if (quick.best.plans().size() < 50) continue;
        quick.slowest_s = 0;
        for (const search::Candidate& plan : quick.best.plans())
          quick.slowest_s = std::max(quick.slowest_s, plan.best.step_s);
      }
      EXPECT_LT(quick.counts.plans, whole.counts.plans / 2) << memory_gib << " GiB";
      EXPECT_EQ(steps_of(quick.best), steps_of(whole.best)) << memory_gib << " GiB";
    }
  }
}

}  // namespace
}  // namespace heddle::planner
