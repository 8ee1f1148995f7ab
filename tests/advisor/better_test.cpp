// Plans that are better than a job, and their parts that other trainers can't be told.
#include "advisor/advice/better.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "advisor/advice/targets.h"
#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"

namespace heddle::advisor {
namespace {

Job deepseek(int pp, Pipeline pipeline) {
  Job j;
  j.shape = *model::find_shape("DeepSeek-V3");
  j.device = *cost::accelerator_named("H800");
  j.mesh = {.dp = 64, .pp = pp, .ep = 64};
  j.global_batch = 64 * 6 * pp;
  j.pipeline = pipeline;
  return j;
}

TEST(Targets, StagesThatKeepApartAreHeddlesAlone) {
  Launch launch = launch_of(deepseek(4, one_f_one_b()), {12, 15, 17, 17});
  launch.by_stage = {{12, {{GroupName::layer}, 0.5}},
                     {15, {GroupName::norm, GroupName::activation}},
                     {17, {GroupName::norm, GroupName::activation}},
                     {17, {}}};
  EXPECT_TRUE(refusals_of(launch, "heddle").empty());
  const std::vector<std::string> no = refusals_of(launch, "megatron");
  EXPECT_TRUE(std::any_of(no.begin(), no.end(), [](const std::string& line) {
    return line.find("the same again on all stages") != std::string::npos;
  }));
  const std::vector<observe::SaidLaunch> said = said_to_all(launch);
  ASSERT_EQ(said.size(), 3u);
  for (const observe::SaidLaunch& each : said) EXPECT_EQ(each.text.empty(), each.target != "heddle") << each.target;
  EXPECT_EQ(said[0].text, launch_text(launch, "heddle"));
  EXPECT_EQ(said[1].refusal, no.front());
  EXPECT_THROW(launch_text(launch, "megatron"), ConfigError);
  EXPECT_THROW(refusals_of(launch, "deepspeed"), ConfigError);
}

TEST(Better, IsFasterSayableAndItsOwnAnswer) {
  Job poor = deepseek(8, one_f_one_b());
  poor.mesh = {.tp = 4, .dp = 4, .pp = 4, .ep = 16};
  poor.shape = *model::find_shape("DeepSeek-V2");
  poor.recompute.set(GroupName::layer);
  const double memory = search::usable_bytes(poor.device);
  for (const char* target : {"megatron", "heddle"}) {
    const BetterAnswer found = search_better(launch_of(poor), target, memory);
    ASSERT_TRUE(found.best.has_value()) << target;
    EXPECT_LT(found.best->ratio, 0.9);
    EXPECT_FALSE(found.best->changes.empty());
    EXPECT_TRUE(refusals_of(found.best->launch, target).empty()) << target;
    EXPECT_NEAR(found.best->plan.exact.step_s, found.best->ratio * found.given_step_s, 1e-9);
    // Nothing is better than a plan that it gave, unless stages keep apart, which a job alone can't say.
    if (!found.best->plan.by_stage.empty()) continue;
    EXPECT_FALSE(search_better(found.best->launch, target, memory).best.has_value()) << target;
  }
  EXPECT_THROW(search_better(launch_of(poor), "deepspeed", memory), ConfigError);
}

// Of such plans all that are found may be ones that MindSpeed does not run.
TEST(Targets, NoPlanForMindSpeedOffloadsBesideOverlapOfTheExchange) {
  search::Query query;
  Job& job = query.space.job;
  job.shape = *model::find_shape("Kimi-K2");
  job.device = *cost::accelerator_named("Ascend-910C");
  job.global_batch = 3072;
  query.space.devices = 768;
  restrict_to("mindspeed", query.space.restriction, job);
  query.space.restriction.set("pp=4,8");
  query.space.restriction.set("tp=4");
  const search::Answer found = search::search(query);
  ASSERT_FALSE(found.top.empty());
  for (const search::Ranked& plan : found.top)
    for (const std::string& line : refusals_of(search::launch_of(plan), "mindspeed"))
      EXPECT_EQ(line.find("offload of activations"), std::string::npos) << line;
}

// Ranks of cp on two nodes: of the ways that the trainer can say, the fastest, and a change like any other.
TEST(Better, VariesTheWayOfContextRanks) {
  Job j;
  j.shape = *model::find_shape("Llama-3-8B");
  j.device = *cost::accelerator_named("H100");
  j.mesh = {.cp = 16};
  j.sequence = 16384;
  j.context = model::Context::ring;
  const Launch given = launch_of(j);
  for (const char* target : {"megatron", "mindspeed", "heddle"}) {
    Query query = query_beside(given, target, 1e12);
    std::vector<std::string>& ways = query.space.restriction.context;
    ASSERT_FALSE(ways.empty());
    EXPECT_EQ(ways.front(), "ring");
    EXPECT_EQ(std::count(ways.begin(), ways.end(), "double_ring"), target == std::string_view("megatron") ? 0 : 1);
    query.space.restriction.set("cp=16");
    const Answer best = search::search(query);
    ways = {"ring"};
    const Answer ring = search::search(query);
    ASSERT_FALSE(best.top.empty() || ring.top.empty()) << target;
    EXPECT_LT(best.top.front().exact.step_s, ring.top.front().exact.step_s) << target;
    const Better better = better_of(given, 1, best.top.front());
    EXPECT_TRUE(std::any_of(better.changes.begin(), better.changes.end(), [](const std::string& change) {
      return change.starts_with("context ring → ");
    })) << target;
  }
}

}  // namespace
}  // namespace heddle::advisor
