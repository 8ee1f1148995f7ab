// Where state, weights and gradients may lie, as a dimension of the search.
#include "heddle/search/plans/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "heddle/base/error.h"
#include "heddle/config/run_config.h"
#include "heddle/search/lowered_blocks.h"
#include "heddle/search/plan_memory.h"
#include "heddle/search/search.h"
#include "tests/search/lowered_query.h"

namespace heddle::search {
namespace {

using plan::MasterForm;
using plan::StateResidency;

const PricedResidency& residency_of(const std::vector<PricedResidency>& all, StateResidency home, MasterForm form,
                                    bool weights = false, bool gradients = false) {
  return *std::find_if(all.begin(), all.end(), [&](const PricedResidency& r) {
    return r.optimizer == home && r.master == form && !r.weights.empty() == weights &&
           !r.gradients.empty() == gradients;
  });
}

// A parameter has 12 bytes of state. What isn't on the device is on the host; split masters are nowhere.
TEST(Residency, BytesAreThoseOfTheCostTable) {
  const LoweredBlocks blocks(v2_lite(), plan_in_bf16());
  const std::vector<PricedResidency>& all = blocks.residencies(job_of_lowered(v2_lite(), "H800"));
  ASSERT_EQ(all.size(), 4 * 2 * 4);
  const PricedResidency& usual = residency_of(all, StateResidency::device, MasterForm::full);
  EXPECT_EQ(usual, PricedResidency{});
  const PricedResidency& split = residency_of(all, StateResidency::device, MasterForm::split);
  EXPECT_NEAR(split.away_bytes, 2, 0.01);
  EXPECT_EQ(split.host_bytes, 0);
  EXPECT_EQ(split.end_s, 0);  // it spares traffic
  const PricedResidency& swap = residency_of(all, StateResidency::swap, MasterForm::full);
  EXPECT_NEAR(swap.away_bytes, 12, 0.4);  // less the slots
  EXPECT_NEAR(swap.host_bytes, 12, 0.4);
  const PricedResidency& mapped = residency_of(all, StateResidency::mapped, MasterForm::full);
  EXPECT_NEAR(mapped.away_bytes, 8, 0.1);
  EXPECT_NEAR(mapped.host_bytes, 8, 0.1);
  const PricedResidency& host = residency_of(all, StateResidency::host, MasterForm::full);
  EXPECT_NEAR(host.away_bytes, 12, 0.4);
  EXPECT_GE(host.host_bytes, 12 + 3.9);  // gradients wait there
  // 12 bytes each way over the link, of which 0.7 is reached.
  const double link_s = 12 / (0.7 * cost::accelerator_named("H800")->host_bytes_per_s);
  EXPECT_NEAR(swap.end_s / link_s, 1, 0.3);
  EXPECT_GT(mapped.end_s, 0);
  EXPECT_GT(host.end_s, 0);
}

TEST(Residency, TimeFollowsTheLinkAndTheHost) {
  const LoweredBlocks blocks(v2_lite(), plan_in_bf16());
  Job job = job_of_lowered(v2_lite(), "H800");
  const auto end_s = [&](StateResidency home) {
    return residency_of(blocks.residencies(job), home, MasterForm::full).end_s;
  };
  const double swap = end_s(StateResidency::swap), host = end_s(StateResidency::host);
  job.device.host_bytes_per_s /= 4;
  EXPECT_GT(end_s(StateResidency::swap), 3 * swap);
  job = job_of_lowered(v2_lite(), "H800");
  job.device.host_memory_bytes_per_s /= 4;
  EXPECT_EQ(end_s(StateResidency::swap), swap);
  EXPECT_GT(end_s(StateResidency::host), 2 * host);
}

PricedResidency drawn(StateResidency home, MasterForm form, double away, double end, bool weights = false) {
  PricedResidency r;
  r.optimizer = home, r.master = form, r.weights = on_host(weights), r.away_bytes = away, r.end_s = end;
  return r;
}

TEST(Residency, OnlyWhatFreesMoreForMoreIsTried) {
  const std::vector<PricedResidency> all{drawn(StateResidency::host, MasterForm::full, 12, 5),
                                         drawn(StateResidency::device, MasterForm::full, 0, 0),
                                         drawn(StateResidency::mapped, MasterForm::full, 8, 2),
                                         drawn(StateResidency::swap, MasterForm::full, 12, 3),
                                         drawn(StateResidency::device, MasterForm::split, 2, -1),
                                         drawn(StateResidency::device, MasterForm::full, 0, 0, true)};
  const std::vector<PricedResidency> tried = worth_trying(all, {});
  ASSERT_EQ(tried.size(), 5u);
  EXPECT_EQ(tried[0], all[1]);  // the usual one first, though another is shorter
  EXPECT_EQ(tried[1], all[4]);
  EXPECT_EQ(tried[2], all[2]);
  EXPECT_EQ(tried[3], all[3]);  // not on the host, which frees as much for more
  EXPECT_EQ(tried[4], all[5]);
  ResidencyWords words;
  words.optimizer = {"host", "swap"};
  words.weights = {"device"};
  EXPECT_EQ(worth_trying(all, words), std::vector<PricedResidency>{all[3]});
  words.master = {"split"};
  EXPECT_TRUE(worth_trying(all, words).empty());
}

Query query_of_residency(const LoweredBlocks* blocks) {
  Query q = query_of_lowered(job_of_lowered(v2_lite(), "H800"), blocks,
                             {"tp=1", "cp=1", "etp=1", "microbatch=1", "pp=2,4", "schedule=1f1b", "by_stage=0"});
  q.space.restriction.residencies = blocks != nullptr;
  return q;
}

TEST(Residency, IsTriedWhereNothingElseFits) {
  const LoweredBlocks blocks(v2_lite(), plan_in_bf16());
  Query q = query_of_residency(&blocks);
  q.memory_bytes = 1e15;
  for (const Ranked& r : search(q).top) EXPECT_EQ(r.job.residency, PricedResidency{});
  Query device = q;
  for (const char* only : {"optimizer=device", "master=full", "weights=device", "gradients=device"})
    device.space.restriction.set(only);
  const double usual = least_gib(device), any = least_gib(q);
  EXPECT_LT(any, usual - 4);
  q.memory_bytes = any * (1 << 30);
  const Answer found = search(q);
  const Ranked& best = found.top.front();
  EXPECT_GT(best.exact.host_bytes, 0);
  EXPECT_NE(text_of(best.job.residency), "");
  device.memory_bytes = 1e15;
  EXPECT_GE(best.exact.step_s, search(device).top.front().exact.step_s);
  // The page's parts add up to the plan's peak with what left, too.
  PlanTimer timer;
  const TimedPlan timed = timer.timed(launch_of(best));
  double sum = 0;
  for (const MemoryPart& part : memory_parts(timed)) sum += part.bytes;
  EXPECT_NEAR(sum / timed.exact.peak_bytes, 1, 1e-6);
  EXPECT_EQ(timed.exact.host_bytes, best.exact.host_bytes);
}

TEST(Residency, TheHostHoldsNoMoreThanItHas) {
  const LoweredBlocks blocks(v2_lite(), plan_in_bf16());
  Query q = query_of_residency(&blocks);
  q.space.restriction.set("optimizer=swap");
  q.space.job.device.host_memory_bytes = 200e9;
  ASSERT_FALSE(search(q).top.empty());
  q.space.job.device.host_memory_bytes = 4e9;
  EXPECT_TRUE(search(q).top.empty());
}

TEST(Residency, IsHeddlesAlone) {
  Query q = query_of_residency(nullptr);
  EXPECT_NO_THROW(search(q));
  q.space.restriction.set("optimizer=swap");
  EXPECT_THROW(search(q), ConfigError);
  EXPECT_THROW(q.space.restriction.set("optimizer=auto"), ConfigError);
  EXPECT_THROW(q.space.restriction.set("weights=all"), ConfigError);
}

}  // namespace
}  // namespace heddle::search
