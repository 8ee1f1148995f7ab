// A configuration on a described device is the launch that it was written from.
#include "advisor/answer/config_job.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "advisor/advice/better.h"
#include "advisor/answer/one_changes.h"
#include "advisor/answer/typed_words.h"
#include "advisor/points/calibration.h"
#include "heddle/base/error.h"
#include "heddle/model/shapes/shape_presets.h"
#include "heddle/planner/launch_settings.h"
#include "heddle/search/explain.h"

namespace heddle::advisor {
namespace {

search::Answer plans_of(const char* model, std::string_view target, int devices) {
  Query query;
  Job& job = query.space.job;
  job.shape = *model::find_shape(model);
  job.device = *cost::accelerator_named("H100");
  job.global_batch = 2 * devices;
  restrict_to(target, query.space.restriction, job);
  query.space.devices = devices;
  query.top = 6;
  query.threads = 1;
  return search::search(query);
}

double uncorrected(const Launch& /*launch*/) { return 1; }

TEST(Interval, OfADeviceWithoutRowsIsWide) {
  const Calibration& calibration = Calibration::built_in();
  Launch launch = search::launch_of(plans_of("Llama-3-8B", "megatron", 32).top.front());
  const auto interval = [&](const char* device) {
    launch.job.device = *cost::accelerator_named(device);
    return calibration.interval(launch.job, search::estimate(launch.job));
  };
  const search::ScaleInterval measured = interval("H100"), not_measured = interval("H20");
  EXPECT_GT(std::log(not_measured.high / not_measured.scale), 2 * std::log(measured.high / measured.scale));
  // Hopper's correction is of products that its power throttles, which H20's are not.
  const search::Estimate e = search::estimate(launch.job);
  EXPECT_GE(not_measured.scale * e.step_s, (1 - 1e-9) * (e.time.products + e.time.attention));
  EXPECT_LT(search::model_flops_utilization(launch.job, not_measured.scale * e.step_s), 0.87);
}

TEST(ConfigJob, ReadsBackWhatALaunchIsWrittenAs) {
  int read = 0;
  for (const char* model : {"Qwen3-30B-A3B", "Llama-3-8B", "DeepSeek-V2-Lite"}) {
    for (const Ranked& plan : plans_of(model, "heddle", 32).top) {
      const Launch launch = search::launch_of(plan);
      // A choice by stage is words of layers, which an estimate has of all layers alone.
      if (!launch.by_stage.empty() || !planner::refusals_of(launch).empty()) continue;
      std::vector<std::string> notes;
      const Launch back = launch_of_config(planner::config_of(launch), launch.job.device, notes);
      EXPECT_EQ(notes, std::vector<std::string>{}) << model;
      EXPECT_EQ(typed_words(back, "heddle").words, typed_words(launch, "heddle").words) << model;
      ++read;
    }
  }
  EXPECT_GE(read, 6);
}

TEST(ConfigJob, NotesWhatAnEstimateLacks) {
  std::vector<std::string> notes;
  const config::RunConfig config = config::parse_run_config(
      "[model]\npreset = \"demo\"\n[memory]\nrecompute = \"norm:0-1\"\n[device]\ndtype = \"f32\"\n", "x.toml");
  launch_of_config(config, *cost::accelerator_named("H100"), notes);
  EXPECT_EQ(notes.size(), 2U);
  config::RunConfig own = config;
  own.plan.mesh.pp = 2;
  own.plan.parallel.schedule = "order.txt";
  EXPECT_THROW(launch_of_config(own, *cost::accelerator_named("H100"), notes), ConfigError);
}

TEST(OneChanges, EachIsWhatItsWordsMakeOfThePlan) {
  const search::Answer found = plans_of("Qwen3-30B-A3B", "megatron", 32);
  Launch launch = search::launch_of(found.top.back());
  launch.job.recompute.set(GroupName::layer);
  const search::Explanation plan = search::explain(launch, {.memory_bytes = found.memory_bytes});
  ASSERT_TRUE(plan.fits);
  const std::vector<PlanChange> changes = one_changes(plan, "megatron", nullptr, uncorrected, 8);
  ASSERT_GE(changes.size(), 3U);
  EXPECT_GT(changes.front().speed_ratio, 1);
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_LE(changes[i].peak_bytes, found.memory_bytes);
    EXPECT_FALSE(changes[i].add.empty() && changes[i].remove.empty()) << changes[i].change;
    if (i > 0) {
      EXPECT_LE(changes[i].speed_ratio, changes[i - 1].speed_ratio);
    }
    for (size_t j = 0; j < i; ++j)
      EXPECT_FALSE(changes[i].add == changes[j].add && changes[i].remove == changes[j].remove) << changes[i].change;
  }
}

TEST(OneChanges, HaveTheCorrectionOfTheirOwnJob) {
  const search::Answer found = plans_of("Qwen3-30B-A3B", "megatron", 32);
  const Launch launch = search::launch_of(found.top.front());
  const auto scale = [&](const Launch& l) { return l.job.precision == launch.job.precision ? 2.0 : 3.0; };
  search::ExplainRequest request{.memory_bytes = found.memory_bytes};
  request.scale = [](const Launch&) { return search::ScaleInterval{2, 2, 2, ""}; };
  const search::Explanation plan = search::explain(launch, request);
  constexpr size_t kAll = 100;
  const std::vector<PlanChange> plain = one_changes(
                                    plan, "megatron", nullptr, [](const Launch&) { return 2.0; }, kAll),
                                own = one_changes(plan, "megatron", nullptr, scale, kAll);
  ASSERT_EQ(plain.size(), own.size());
  int narrow = 0;
  for (const PlanChange& change : own) {
    const auto same = std::find_if(plain.begin(), plain.end(),
                                   [&](const PlanChange& other) { return other.change == change.change; });
    ASSERT_NE(same, plain.end()) << change.change;
    const bool fp8 = change.change == "matrix products in fp8";
    narrow += fp8 ? 1 : 0;
    EXPECT_NEAR(change.speed_ratio / same->speed_ratio, fp8 ? 2.0 / 3 : 1, 1e-9) << change.change;
  }
  EXPECT_EQ(narrow, 1);
}

TEST(OneChanges, OfTheExpertDegreeHaveItsImbalance) {
  const search::Answer found = plans_of("Qwen3-30B-A3B", "megatron", 32);
  const Launch launch = search::launch_of(found.top.front());
  const cost::Routing routing;
  int moved = 0;
  for (const search::Neighbour& n :
       search::explain(launch, {.memory_bytes = found.memory_bytes, .routing = routing}).neighbours) {
    const Job& job = n.launch.job;
    if (!job.shape.n_routed_experts) continue;
    EXPECT_EQ(job.imbalance, routing.fullest(0.5, job.shape.n_routed_experts, job.mesh.ep)) << n.change;
    moved += job.mesh.ep != launch.job.mesh.ep ? 1 : 0;
  }
  EXPECT_GE(moved, 1);
}

TEST(OneChanges, OverlapOfTheExchangeTakesTwoMicrobatches) {
  Launch launch = search::launch_of(plans_of("Qwen3-30B-A3B", "megatron", 32).top.front());
  Job& job = launch.job;
  job.mesh = {};
  job.mesh.dp = 32, job.mesh.ep = 8;
  job.chunks = 1;
  job.pipeline = search::one_f_one_b();
  job.software.overlap_exchange = false;
  for (const int batches : {1, 2}) {
    job.microbatch = 1;
    job.global_batch = 32 * batches;
    const search::Explanation plan = search::explain(search::launch_of(job), {.memory_bytes = 1e18});
    const auto overlap =
        std::find_if(plan.neighbours.begin(), plan.neighbours.end(),
                     [](const search::Neighbour& n) { return n.change == "overlap of the exchange"; });
    ASSERT_NE(overlap, plan.neighbours.end());
    EXPECT_EQ(overlap->reason, batches == 1 ? "overlap of the exchange takes two microbatches or more" : "");
  }
}

TEST(WordChanges, WithoutOverlapTakesAllOfItsFlags) {
  Launch with = search::launch_of(plans_of("Qwen3-30B-A3B", "megatron", 32).top.front());
  with.job.mesh = {};
  with.job.mesh.dp = 32, with.job.mesh.ep = 8;
  with.job.chunks = 1;
  with.job.pipeline = search::one_f_one_b();
  with.job.software.overlap_exchange = true;
  with = search::launch_of(with.job);
  Job without = with.job;
  without.software.overlap_exchange = false;
  const WordChanges words = word_changes(with, search::launch_of(without), "megatron", nullptr);
  for (const char* flag : {"--overlap-moe-expert-parallel-comm", "--delay-wgrad-compute"})
    EXPECT_EQ(std::count(words.remove.begin(), words.remove.end(), flag), 1) << flag;
}

TEST(TypedWords, NameDeepepOnlyWhereItRuns) {
  Launch launch = search::launch_of(plans_of("Qwen3-30B-A3B", "megatron", 32).top.front());
  launch.job.mesh = {};
  launch.job.mesh.dp = 32, launch.job.mesh.ep = 8;
  launch.job.chunks = 1;
  launch.job.pipeline = search::one_f_one_b();
  launch.job.software.overlap_exchange = false;
  const auto words = [&](const char* device, ir::Topology topology) {
    launch.job.exchange.topology = topology;
    launch.job.device = *cost::accelerator_named(device);
    const TypedWords typed = typed_words(search::launch_of(launch.job), "megatron");
    return fmt::format("{} {}", typed.refusal, fmt::join(typed.words, " "));
  };
  using enum ir::Topology;
  EXPECT_NE(words("H100", node).find("deepep"), std::string::npos);
  EXPECT_NE(words("MI300X", node).find("DeepEP, which has no kernels for MI300X"), std::string::npos);
  EXPECT_NE(words("MI300X", plain).find("--moe-token-dispatcher-type alltoall"), std::string::npos);
  for (const char* device : {"Gaudi2", "TPU-v5p"})
    EXPECT_NE(words(device, plain).find("Megatron-LM has no backend for"), std::string::npos)
        << words(device, plain);
  search::Restriction space;
  launch.job.device = *cost::accelerator_named("MI300X");
  launch.job.exchange.topology = node;
  restrict_to("megatron", space, launch.job);
  EXPECT_EQ(launch.job.exchange.topology, plain);
}

TEST(OneChanges, OfAPlanThatDoesNotFitMakeItFit) {
  Launch launch = search::launch_of(plans_of("Qwen3-30B-A3B", "megatron", 32).top.front());
  launch.job.recompute = {};
  const double peak = search::explain(launch, {.memory_bytes = 1e18}).peak_bytes();
  const search::Explanation plan = search::explain(launch, {.memory_bytes = 0.8 * peak});
  ASSERT_FALSE(plan.fits);
  const std::vector<PlanChange> changes = one_changes(plan, "megatron", nullptr, uncorrected, 3);
  ASSERT_FALSE(changes.empty());
  for (const PlanChange& change : changes) EXPECT_LE(change.peak_bytes, 0.8 * peak) << change.change;
}

}  // namespace
}  // namespace heddle::advisor
