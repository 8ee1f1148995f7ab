// Plans that are proposed for a run's ranks: those of the search's space, as settings; and the choice among them.
#include "heddle/planner/choose_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "heddle/passes/op_groups.h"
#include "heddle/planner/budget/memory_budget.h"
#include "heddle/planner/budget/state_residencies.h"
#include "heddle/planner/searched_plans.h"
#include "tests/planner/planner_fixture.h"

namespace heddle::planner {
namespace {

constexpr const char* kSmall =
    "[model]\nhidden_size = 128\nnum_hidden_layers = 4\n[train]\nglobal_batch = 8\nmicrobatch = 2\n"
    "sequence_length = 64\n[device]\ndtype = \"f32\"\nthreads = 1\n";

std::vector<std::string> with(std::vector<std::string> set, const std::vector<std::string>& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

TEST(SearchedPlans, ArePlansOfTheRanks) {
  const ConfigFile file(kSmall);
  const std::vector<std::string> ranks{"mesh.ranks=4"};
  const config::RunConfig config = config::read_run_config(file.path(), ranks);
  const cost::MachineProfile profile = made_profile();
  const auto plans = searched_plans(config, {}, profile, {});
  ASSERT_GE(plans.size(), 10u);
  std::set<int> tp, pp, ep;
  std::set<std::string> schedules;
  for (const std::vector<std::string>& settings : plans) {
    const config::RunConfig each = config::read_run_config(file.path(), with(ranks, settings));
    EXPECT_EQ(each.ranks(), 4);
    plan::check(each.model, train::plan_of(each));  // throws where it is none
    tp.insert(each.plan.mesh.tp), pp.insert(each.plan.mesh.pp), ep.insert(each.plan.mesh.ep);
    if (each.plan.mesh.pp > 1) schedules.insert(each.plan.parallel.schedule);
  }
  EXPECT_GE(tp.size(), 2u);
  EXPECT_GE(pp.size(), 2u);
  EXPECT_GE(ep.size(), 2u);
  EXPECT_GE(schedules.size(), 3u);
  EXPECT_EQ(searched_plans(config, {}, profile, {}), plans);
}

TEST(SearchedPlans, KeepWhatIsFixed) {
  const ConfigFile file(kSmall);
  const std::vector<std::string> set{"mesh.ranks=4", "mesh.pp=2", "parallel.schedule=zb_h1", "train.microbatch=1"};
  const config::RunConfig config = config::read_run_config(file.path(), set);
  const auto plans =
      searched_plans(config, {"mesh.pp", "parallel.schedule", "train.microbatch"}, made_profile(), {});
  ASSERT_FALSE(plans.empty());
  for (const std::vector<std::string>& settings : plans) {
    const config::RunConfig each = config::read_run_config(file.path(), with(set, settings));
    EXPECT_EQ(each.plan.mesh.pp, 2);
    EXPECT_EQ(each.plan.parallel.schedule, "zb_h1");
    EXPECT_EQ(each.train.microbatch, 1);
  }
}

// Gradients and weights are cut where the memory asks for it, and stay as the user has them.
TEST(SearchedPlans, AreShardedWhereMemoryIsShort) {
  const ConfigFile file(kSmall);
  const auto shards_of = [&](const std::vector<std::string>& more, const std::set<std::string>& fixed) {
    const std::vector<std::string> set =
        with({"mesh.ranks=4", "mesh.tp=1", "mesh.cp=1", "mesh.pp=1", "mesh.ep=1"}, more);
    std::set<std::string> shards, keys = fixed;
    keys.insert({"mesh.tp", "mesh.cp", "mesh.pp", "mesh.ep"});
    const config::RunConfig config = config::read_run_config(file.path(), set);
    for (const std::vector<std::string>& settings : searched_plans(config, keys, made_profile(), {}))
      shards.emplace(word_of(config::read_run_config(file.path(), with(set, settings)).plan.parallel.shard));
    return shards;
  };
  using Words = std::set<std::string>;
  EXPECT_EQ(shards_of({}, {}), Words{"state"});
  EXPECT_EQ(shards_of({"parallel.shard=weights"}, {}), Words{"state"});
  EXPECT_EQ(shards_of({"parallel.shard=weights"}, {"parallel.shard"}), Words{"weights"});
  EXPECT_TRUE(shards_of({"device.memory_bytes=31457280"}, {}).contains("weights"));
}

// Each switch that says it is planned is tried, with its values, where it has something to do.
TEST(ChoosePlan, TriesEverySwitchThatIsPlanned) {
  const ConfigFile file(kSmall);
  const cost::MachineProfile profile = made_profile();
  const std::vector<std::string> set{"mesh.ranks=2"};
  std::set<std::string> tried;
  const PredictFn predict = [&](const config::RunConfig& config, bool arena) {
    for (const config::Setting& s : config::settings())
      if (s.as_switch && s.as_switch->planned) tried.insert(s.key + "=" + plan::text_of(s.get(config)));
    return predict_config(config, profile, {}, arena);
  };
  const Propose propose = [&](const config::RunConfig& config, const std::set<std::string>& fixed) {
    auto few = searched_plans(config, fixed, profile, {});
    few.resize(std::min<size_t>(few.size(), 4));
    return few;
  };
  const PlanChoice choice = choose_plan(file.path(), set, predict, propose, PlanMode::automatic, 300);
  int planned = 0;
  for (const config::Setting& s : config::settings()) {
    if (!s.as_switch || !s.as_switch->planned) continue;
    ++planned;
    const bool elsewhere = !matters(*s.as_switch->planned, config::read_run_config(file.path(), set), false);
    for (const plan::Value& value : s.planned_values())
      EXPECT_EQ(tried.contains(s.key + "=" + plan::text_of(value)), !elsewhere)
          << s.key << " " << plan::text_of(value);
  }
  EXPECT_EQ(planned, 13);
  ASSERT_TRUE(choice.chosen.fits());
  EXPECT_LE(choice.chosen.step_us, choice.configured.step_us);
  for (const Candidate& c : choice.all) EXPECT_TRUE(!c.fits() || choice.chosen.step_us <= 1.001 * c.step_us);
}

// The configured plan doesn't fit. With the values dropped that a budget of the memory chooses it does, although no
// switch names those words.
TEST(ChoosePlan, MakesFitWhatIsTooLarge) {
  const ConfigFile file(kSmall);
  const cost::MachineProfile profile = made_profile();
  const Candidate whole = predicted(file.path(), {}, {}, [&](const config::RunConfig& config, bool arena) {
    return predict_config(config, profile, {}, arena);
  });
  const int64_t limit = whole.reserved_bytes - whole.reserved_bytes / 50;
  const std::vector<std::string> set{fmt::format("device.memory_bytes={}", limit), "train.microbatch=2"};
  config::RunConfig budget = config::read_run_config(file.path(), set);
  budget.plan.memory.budget_bytes = limit;
  const std::vector<std::string> chosen = within_budget(budget).value().settings;
  ASSERT_FALSE(chosen.empty());
  std::set<std::string> attempted;
  const PredictFn predict = [&](const config::RunConfig& config, bool arena) {
    attempted.insert(passes::text_of(config.plan.memory.recompute));
    return predict_config(config, profile, {}, arena);
  };
  const Propose none = [](const config::RunConfig&, const std::set<std::string>&) {
    return std::vector<std::vector<std::string>>();
  };
  const PlanChoice choice = choose_plan(file.path(), set, predict, none, PlanMode::automatic, 300);
  EXPECT_FALSE(choice.configured.fits());
  EXPECT_TRUE(choice.chosen.fits());
  const config::RunConfig within = config::read_run_config(file.path(), with(set, chosen));
  EXPECT_TRUE(attempted.contains(passes::text_of(within.plan.memory.recompute))) << chosen[0];
}

// A proposed plan that is good but for one setting loses that one, although no switch names its usual value.
TEST(ChoosePlan, DropsWhatMakesItWorse) {
  const ConfigFile file(kSmall);
  const std::vector<std::string> good{"memory.recompute=norm"}, bad{"fusions.norm=false"};
  const PredictFn predict = [](const config::RunConfig& config, bool) {
    ConfigPrediction p;
    p.prediction.step_us = 100 - (passes::text_of(config.plan.memory.recompute) == "norm" ? 20 : 0) +
                           (config.plan.fusions.contains("norm") ? 0 : 5);
    return p;
  };
  const Propose propose = [&](const config::RunConfig&, const std::set<std::string>&) {
    return std::vector<std::vector<std::string>>{with(good, bad)};
  };
  const PlanChoice choice = choose_plan(file.path(), {}, predict, propose, PlanMode::automatic, 300);
  EXPECT_EQ(choice.chosen.set, good);
  EXPECT_EQ(choice.chosen.step_us, 80);
}

// A setting that shortens the step by less than 0.1 % is not worth memory, nor a word.
TEST(BestOf, IsTheLeastMemoryAmongPlansAlike) {
  const auto plan = [](std::vector<std::string> set, double step_us, int64_t bytes) {
    return Candidate{
        .set = std::move(set), .step_us = step_us, .exposed_us = 0, .reserved_bytes = bytes, .refusal = {}};
  };
  const std::vector<Candidate> all{plan({"a", "b"}, 1000, 50), plan({"a"}, 1000.5, 40), plan({}, 1000.9, 40),
                                   plan({}, 1002, 10)};
  EXPECT_EQ(best_of(all, PlanMode::automatic), &all[2]);
  EXPECT_EQ(best_of(all, PlanMode::save_memory), &all[3]);
}

}  // namespace
}  // namespace heddle::planner
