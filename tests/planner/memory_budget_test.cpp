// memory.budget: what is chosen, what is refused, and that steps with a hostile router keep to it, to the bits of
// the run without a budget.
#include "heddle/planner/budget/memory_budget.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "heddle/base/random.h"
#include "heddle/passes/op_groups.h"
#include "heddle/passes/recompute.h"
#include "heddle/planner/budget/budget_text.h"
#include "heddle/planner/budget/candidates.h"
#include "heddle/planner/budget/drop_values.h"
#include "heddle/planner/budget/state_residencies.h"
#include "heddle/planner/memory/budget_share.h"
#include "heddle/planner/rank_memory.h"
#include "heddle/runtime/predict.h"
#include "heddle/train/run_config_plan.h"
#include "tests/runtime/kept_bits.h"

namespace heddle::planner {
namespace {

/// On `reference`, which has no scratch: what is chosen is the same on any processor. Sequences are so long that a
/// value is small beside all that a rank holds.
config::RunConfig config_of(const std::vector<std::string>& set = {}) {
  std::vector<std::string> all{"mesh.dp=2",
                               "mesh.ep=2",
                               "train.global_batch=16",
                               "train.microbatch=2",
                               "device.dtype=f32",
                               "train.sequence_length=128",
                               "device.threads=1",
                               "device.backend=reference"};
  all.insert(all.end(), set.begin(), set.end());
  config::RunConfig config = config::parse_run_config("", "test", all);
  config.model = test::small();
  return config;
}

config::RunConfig with_budget(config::RunConfig config, int64_t bytes) {
  config.plan.memory.budget_bytes = bytes;
  return config;
}

int64_t least_of(const config::RunConfig& config, const std::string& words) {
  config::RunConfig one = with_budget(config, int64_t{1} << 50);
  one.plan.memory.recompute = passes::recompute_groups(words);
  int64_t most = 0;
  for (int rank = 0; rank < config.ranks(); ++rank) most = std::max(most, train::arena_bytes_of(one, rank));
  return most;
}

config::RunConfig with_choice(config::RunConfig config, const BudgetChoice& choice) {
  for (const std::string& setting : choice.settings) {
    const size_t equals = setting.find('=');
    const config::Setting* s = config::find_setting(setting.substr(0, equals));
    s->set(config, plan::Value(setting.substr(equals + 1)));  // words and lists
  }
  return config;
}

bool uses_host(const plan::Memory& memory) {
  return !memory.offload.empty() || memory.optimizer != plan::StateResidency::device || !memory.weights.empty() ||
         !memory.gradients.empty();
}

// What one walk without a limit shows is what the arena of a run shows.
TEST(RankMemory, IsThatOfTheArenaThatTrainingMakes) {
  for (const std::vector<std::string>& set : {std::vector<std::string>{"mesh.dp=1"},
                                              {"mesh.tp=2"},
                                              {"mesh.pp=2", "parallel.schedule=1f1b"},
                                              {"memory.recompute=norm"},
                                              {"memory.optimizer=host"},
                                              {"memory.offload=mlp"}}) {
    std::vector<std::string> all{"mesh.ep=1"};
    all.insert(all.end(), set.begin(), set.end());
    const config::RunConfig config = config_of(all);
    const plan::Plan plan = train::plan_of(config);
    const plan::Lowered lowered = plan::lower(config.model, plan);
    constexpr int64_t kLimit = int64_t{1} << 40;
    for (const RankMemory& r : memory_of_ranks(plan, lowered, "reference", kLimit)) {
      const int64_t arena = runtime::arena_bytes(lowered.program, r.rank, "reference", kLimit);
      const runtime::MemoryPrediction there =
          runtime::predict_memory(lowered.program, r.rank, "reference", arena, 1, kLimit);
      EXPECT_TRUE(r.fits);
      EXPECT_EQ(r.memory.reserved_bytes, there.reserved_bytes) << set.front();
      EXPECT_EQ(r.memory.peak_live_bytes, there.peak_live_bytes) << set.front();
      EXPECT_EQ(r.memory.host_reserved_bytes, there.host_reserved_bytes) << set.front();
      int64_t live_bytes = 0;
      for (const ir::Walk::Live& live :
           runtime::live_at_peak(lowered.program, r.rank, "reference", r.memory.peak_live_bytes))
        live_bytes += ir::place_bytes(live.bytes);
      EXPECT_EQ(live_bytes, r.memory.peak_live_bytes) << set.front();
      EXPECT_EQ(ir::storage_bytes(r.memory.reserved_bytes), arena) << set.front();
    }
  }
}

TEST(MemoryBudget, ChoosesNoMoreThanItMust) {
  const config::RunConfig config = config_of();
  EXPECT_FALSE(within_budget(config));
  const int64_t plain = least_of(config, ""), layer = least_of(config, "layer");
  ASSERT_LT(layer, plain);
  const auto roomy = within_budget(with_budget(config, plain + plain / 8));
  ASSERT_TRUE(roomy);
  EXPECT_TRUE(roomy->settings.empty());
  EXPECT_EQ(roomy->step_us, roomy->free_us);
  double step_us = roomy->free_us;
  for (const double share : {0.9, 0.6, 0.3, 0.05}) {
    const auto budget =
        static_cast<int64_t>(static_cast<double>(layer) + share * static_cast<double>(plain - layer));
    const config::RunConfig kept = with_budget(config, budget);
    EXPECT_THROW(train::arena_bytes_of(kept), train::DoesNotFit) << "nothing given up";
    const auto found = within_budget(kept);
    ASSERT_TRUE(found);
    ASSERT_FALSE(found->settings.empty());
    EXPECT_LE(found->bytes, budget);
    // Waits for memory differ by some thousandths of a step from arena to arena.
    EXPECT_GE(found->step_us, 0.995 * step_us) << "less room, and a shorter step";
    step_us = found->step_us;
    const config::RunConfig set = with_choice(kept, *found);
    EXPECT_FALSE(within_budget(set)) << "what is set stays";
    for (int rank = 0; rank < config.ranks(); ++rank) EXPECT_LE(train::arena_bytes_of(set, rank), budget);
  }
  EXPECT_GT(step_us, 1.01 * roomy->free_us);
}

// The waterfall ends at what the rank takes, and begins with what it would take.
TEST(MemoryBudget, SaysWhereTheBytesGo) {
  const config::RunConfig config = config_of({"mesh.pp=2", "parallel.schedule=1f1b"});
  const auto roomy = within_budget(with_budget(config, int64_t{1} << 40));
  ASSERT_TRUE(roomy);
  const int64_t budget = roomy->bytes * 85 / 100;
  const auto found = within_budget(with_budget(config, budget));
  ASSERT_TRUE(found);
  double would = 0, takes = 0;
  for (const ByteStep& step : found->waterfall) (step.of_choice ? takes : would) += step.bytes;
  EXPECT_GT(would, static_cast<double>(budget));
  EXPECT_NEAR(would + takes, static_cast<double>(found->rank_bytes[static_cast<size_t>(found->fullest)]), 1);
  EXPECT_EQ(found->why.empty(), found->settings.empty());
  const nlohmann::ordered_json json = json_of(*found, budget);
  EXPECT_EQ(json["settings"].size(), found->settings.size());
  const std::string text = waterfall_text(*found, budget, {});
  EXPECT_NE(text.find("without a budget"), std::string::npos) << text;
  EXPECT_NE(text.find("memory.budget"), std::string::npos) << text;
}

// The first rank of a pipeline has most microbatches at once: it gives up what the last one keeps.
TEST(MemoryBudget, GivesUpMostWhereMostIsInFlight) {
  const config::RunConfig config =
      config_of({"mesh.dp=1", "mesh.ep=1", "mesh.pp=4", "train.microbatch=1", "parallel.schedule=1f1b"});
  const auto bytes = [&](const std::string& words, int rank) {
    config::RunConfig one = with_budget(config, int64_t{1} << 50);
    one.plan.memory.recompute = passes::recompute_groups(words);
    return train::arena_bytes_of(one, rank);
  };
  int most = 0;
  for (int r = 1; r < 4; ++r) most = bytes("", r) > bytes("", most) ? r : most;
  const auto found = within_budget(with_budget(config, (bytes("", most) + bytes("layer", most)) / 2));
  ASSERT_TRUE(found);
  ASSERT_FALSE(found->recompute().empty());
  for (const passes::OpGroup& group : passes::recompute_groups(found->recompute()))
    EXPECT_LT(group.last_layer, 4) << found->recompute();
}

// Where the device has a memory of its own, values and state go to the host too.
TEST(MemoryBudget, KnowsTheHost) {
  const config::RunConfig config = config_of({"mesh.pp=2", "parallel.schedule=1f1b", "train.global_batch=32"});
  int64_t tight = least_of(config, "layer");
  const auto refused = [&] {  // however much is made again
    try {
      within_budget(with_budget(config, tight), false);
      return false;
    } catch (const ConfigError&) {
      return true;
    }
  };
  while (!refused()) tight -= tight / 20;
  const auto found = within_budget(with_budget(config, tight), true);
  ASSERT_TRUE(found);
  const config::RunConfig set = with_choice(with_budget(config, tight), *found);
  EXPECT_TRUE(uses_host(set.plan.memory));
  EXPECT_LE(train::arena_bytes_of(set), tight);
}

// What persists may go there, each row that says so by its words; masters have a narrower form beside bf16 weights.
TEST(MemoryBudget, KnowsTheResidencies) {
  const auto keys = [](const config::RunConfig& config, bool own_memory) {
    std::vector<std::string> all;
    for (const std::vector<StateResidencies>& row : residency_rows(config, own_memory))
      all.push_back(row[0].of[0].first->key);
    return all;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys(config_of(), false), Keys());
  EXPECT_EQ(keys(config_of({"device.dtype=bf16"}), false), Keys{"memory.master"});
  EXPECT_EQ(keys(config_of(), true), (Keys{"memory.optimizer", "memory.weights", "memory.gradients"}));
  EXPECT_EQ(keys(config_of({"memory.weights=all"}), true), (Keys{"memory.optimizer", "memory.gradients"}));
}

// Each word of a residency has a price of its own: what it frees of each rank, and what it adds to the step.
TEST(MemoryBudget, PricesEachResidency) {
  const config::RunConfig config = with_budget(
      config_of({"mesh.pp=2", "parallel.schedule=1f1b", "train.global_batch=32", "train.sequence_length=8"}),
      int64_t{1} << 40);
  const BudgetProblem problem(config, true);
  const BudgetProblem::Lowered plain = problem.lowered({}, {}),
                               few = problem.lowered({}, {}, BudgetProblem::Extent::few);
  std::vector<double> bytes;
  for (int r = 0; r < problem.ranks(); ++r) bytes.push_back(static_cast<double>(problem.measured_bytes(*few, r)));
  const double free_us = problem.times(*plain).step_us;
  Candidates candidates(problem, *plain, bytes, free_us);
  const std::vector<BudgetCandidate> best = candidates.best_few(residency_rows(config, true));
  ASSERT_FALSE(best.empty());
  EXPECT_TRUE(best[0].residencies.of.empty()) << "it all fits";
  std::set<std::string> keys;
  for (const ResidencyPrice& price : candidates.prices()) {
    SCOPED_TRACE(price.residency.settings()[0]);
    keys.insert(price.residency.of[0].first->key);
    EXPECT_GT(*std::max_element(price.frees_bytes.begin(), price.frees_bytes.end()), 0);
    EXPECT_EQ(price.costs_us, problem.times(*problem.lowered(price.residency, {})).step_us - free_us);
    const BudgetCandidate with = candidates.begun_with(price.residency), without = candidates.begun_with({});
    for (size_t r = 0; r < bytes.size(); ++r) EXPECT_EQ(without.fixed[r] - price.frees_bytes[r], with.fixed[r]);
  }
  EXPECT_TRUE(keys.contains("memory.optimizer"));
  EXPECT_TRUE(keys.contains("memory.gradients")) << fmt::format("{}", fmt::join(keys, " "));
}

// What is asked for again is not lowered again, and ranks whose texts differ in their layers' numbers alone are
// worked out once.
TEST(MemoryBudget, DoesNothingTwice) {
  config::RunConfig config =
      config_of({"mesh.dp=1", "mesh.ep=1", "mesh.pp=4", "train.microbatch=1", "parallel.schedule=1f1b"});
  config.model.num_hidden_layers = 8;
  config = with_budget(config, int64_t{1} << 40);
  const BudgetProblem problem(config, true);
  const ValueDropper& dropper = problem.dropper();
  const std::string &one_shape = dropper.text(1).shape(), &other_shape = dropper.text(2).shape();
  const auto differs = std::mismatch(one_shape.begin(), one_shape.end(), other_shape.begin(), other_shape.end());
  const auto at = static_cast<size_t>(differs.first - one_shape.begin());
  ASSERT_TRUE(one_shape == other_shape)
      << at << " of " << one_shape.size() << ": " << one_shape.substr(at > 200 ? at - 200 : 0, 240);
  EXPECT_FALSE(dropper.text(0).shape() == one_shape);
  const auto norms = [&](int rank) {
    return std::vector<Item>{{Item::Way::again, "norm", 0, dropper.text(rank).runs(1)[0]}};
  };
  const double of_first = dropper.kept_bytes(1, norms(1));
  const int known = dropper.worked_out();
  EXPECT_EQ(dropper.kept(2, norms(2)).price_us, dropper.kept(1, norms(1)).price_us);
  EXPECT_GT(of_first, dropper.kept_bytes(2, norms(2))) << "it holds one microbatch more";
  EXPECT_EQ(dropper.worked_out(), known);
  dropper.kept(0, norms(0));
  EXPECT_EQ(dropper.worked_out(), known + 1);

  const int before = problem.lowerings();
  const BudgetProblem::Lowered made = problem.lowered({}, dropped_values(norms(1)));
  EXPECT_EQ(problem.lowered({}, dropped_values(norms(1))), made);
  EXPECT_EQ(problem.lowerings(), before + 1);
  EXPECT_NE(problem.lowered({}, dropped_values(norms(2))), made);
  EXPECT_EQ(problem.lowerings(), before + 2);
}

// Lowerings are most of what it takes where walks are short: two of each word of a residency, and of each that is
// tried with all that the ranks give up.
TEST(MemoryBudget, LowersFewPrograms) {
  const config::RunConfig config = config_of({"mesh.pp=2", "parallel.schedule=1f1b"});
  const auto roomy = within_budget(with_budget(config, int64_t{1} << 40), true);
  ASSERT_TRUE(roomy);
  EXPECT_LE(roomy->lowerings, 3);
  EXPECT_LE(roomy->walks, 4);
  const auto found = within_budget(with_budget(config, roomy->bytes * 7 / 10), true);
  ASSERT_TRUE(found);
  EXPECT_LE(found->lowerings, 48);
  EXPECT_LE(found->walks, 96);
}

TEST(MemoryBudget, WritesNeighboursAsOneRange) {
  const auto item = [](Item::Way way, const char* word, int first, int last) {
    return Item{way, word, 0, {first, last, 0, false}};
  };
  const std::vector<Item> items{item(Item::Way::again, "norm", 0, 1),   item(Item::Way::to_host, "input", 3, 3),
                                item(Item::Way::again, "mla_up", 5, 5), item(Item::Way::again, "norm", 2, 2),
                                item(Item::Way::again, "mla_up", 2, 3), item(Item::Way::to_host, "moe", 0, 5)};
  EXPECT_EQ(passes::text_of(in_short(items, 6).recompute), "norm:0-2, mla_up:2-3, mla_up:5");
  EXPECT_EQ(passes::text_of(in_short(items, 6).offload), "input:3, moe");
}

TEST(MemoryBudget, SaysTheLeastThatWouldDo) {
  const config::RunConfig config = config_of();
  const int64_t layer = least_of(config, "layer");
  try {
    within_budget(with_budget(config, layer / 2));
    FAIL();
  } catch (const ConfigError& error) {
    const std::string said = error.what();
    EXPECT_TRUE(said.starts_with("memory.budget is ")) << said;
    EXPECT_NE(said.find("memory.recompute = \"layer\""), std::string::npos) << said;
  }
  EXPECT_TRUE(within_budget(with_budget(config, layer + layer / 50)));
}

// Scratch of the host's kernels follows the sizes of the ops. Where it did not, making layers of a small model
// again took more than it saved, for its ops and those that keep values need the same scratch.
TEST(HostScratch, IsLessThanWhatIsSaved) {
  const auto host = [](const std::string& dtype) {
    return config_of({"device.backend=host", "device.dtype=" + dtype, "train.sequence_length=8"});
  };
  for (const char* dtype : {"f32", "bf16"}) {
    EXPECT_LT(least_of(host(dtype), "layer"), least_of(host(dtype), "")) << dtype;
  }
}

TEST(MemoryBudget, OfLessCrowdingIsLess) {
  config::RunConfig config = config_of({"mesh.dp=4", "mesh.ep=4"});
  const int64_t any = least_of(config, "");
  config.plan.memory.crowding = 1.5;
  EXPECT_LT(least_of(config, ""), any);
}

TEST(MemoryBudget, IsTakenFromTheFile) {
  std::string told;
  config::RunConfig config = config_of();
  const int64_t layer = least_of(config, "layer"), between = layer + (least_of(config, "") - layer) / 8;
  const std::vector<std::string> settings =
      budget_settings(with_budget(config, between), [&](const std::string& line) { told += line; });
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_TRUE(settings[0].starts_with("memory.recompute="));
  EXPECT_NE(told.find("memory.recompute="), std::string::npos) << told;
  EXPECT_EQ(config::parse_run_config("", "test", {"memory.budget=2 MiB"}).plan.memory.budget_bytes, 2 << 20);
}

TEST(MemoryBudget, MayBeAShare) {
  const auto read = [](const std::string& budget, std::vector<std::string> more = {}) {
    more.push_back("memory.budget=" + budget);
    return config::parse_run_config("", "test", more);
  };
  const config::RunConfig config = read("80%", {"device.memory_bytes=100MiB"});
  EXPECT_EQ(config.plan.memory.budget_share, 0.8);
  EXPECT_NE(config::toml_of(config).find("budget = \"80%\""), std::string::npos);
  EXPECT_EQ(config::parse_run_config("[memory]\nbudget = \"12.5%\"", "test").plan.memory.budget_share, 0.125);
  std::string told;
  const auto tell = [&](const std::string& line) { told += line; };
  EXPECT_EQ(share_settings(config, {}, tell), std::vector<std::string>{"memory.budget=83886080"});
  EXPECT_EQ(told, "memory.budget 80%: 80.0 MiB of what a rank's device has");
  EXPECT_TRUE(share_settings(read("80MiB"), {}, tell).empty());
  EXPECT_EQ(read("83886080").plan.memory.budget_share, 0);
  // Ranks that share a machine have a part of it each.
  const int64_t alone = train::memory_limit_of(read("50%")), shared = train::memory_limit_of(read("50%"), {4, 4});
  EXPECT_NEAR(static_cast<double>(alone), 4 * static_cast<double>(shared), 8);
  for (const char* wrong : {"0%", "101%", "-5%", "%", "nan%", "1e9%", "80 percent", "some%"}) {
    try {
      read(wrong);
      ADD_FAILURE() << wrong;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("memory.budget"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(wrong), std::string::npos) << error.what();
    }
  }
}

// A router whose biases turn all tokens of a microbatch to the experts of one rank, to a hot pair that moves, or
// away from the first rank, by the numbers that it is given: the same in any run of the same bits.
constexpr int kWays = 5;
device::Kernel g_router = nullptr;
int64_t g_ranks = 1;

void hostile(const device::KernelCall& call) {
  const device::TensorView& logits = call.in[0];
  const int64_t experts = logits.dim(1), each = experts / g_ranks;
  uint64_t bits = 0;
  std::memcpy(&bits, logits.as<double>(), sizeof bits);
  const RandomKey key(bits);
  const auto way = static_cast<int>(key.bits(0) % kWays);
  const auto hot = static_cast<int64_t>(key.bits(1) % static_cast<uint64_t>(experts));
  std::vector<double> biases(static_cast<size_t>(experts), 0.0);
  for (int64_t e = 0; way < kWays - 1 && e < experts; ++e) {
    const int64_t rank = e / each;
    const bool wanted = way == 0   ? rank == 0
                        : way == 1 ? rank == g_ranks - 1
                        : way == 2 ? rank != 0
                                   : (e - hot + experts) % experts < 2;
    biases[static_cast<size_t>(e)] = wanted ? 8 : -8;
  }
  std::vector<device::TensorView> in(call.in.begin(), call.in.end());
  ASSERT_EQ(in[1].dtype, Dtype::f64);
  in[1].data = biases.data();
  device::KernelCall turned = call;
  turned.in = in;
  g_router(turned);
}

test::Outcome hostile_outcome(const model::ModelConfig& c, const plan::Plan& plan, int64_t arena_bytes) {
  test::TinyRun run(c, plan, "reference", arena_bytes);
  test::fill(run, c, 5);
  const ir::StepProgram& program = run.lowered().program;
  for (int r = 0; r < plan.ranks(); ++r) {
    for (const int s : program.listings_of(r)) {
      const ir::Listing& listing = program.listings[static_cast<size_t>(s)];
      for (uint32_t i = 0; i < listing.ops.size(); ++i) {
        if (listing.ops[i].kind() == "router") g_router = run.executor(r).replace(s, i, hostile);
      }
    }
  }
  run.run(test::tiny_batches(c, plan, 5));
  test::Outcome outcome;
  for (int r = 0; r < plan.ranks(); ++r) {
    EXPECT_LE(run.executor(r).walk().storage().reserved_bytes(), arena_bytes);
    for (const ir::Value& value : run.listing(r).values) {
      if (value.role < ir::Role::accumulator || value.part_of != ir::none) continue;
      outcome.values.emplace_back(fmt::format("rank {} {}", r, value.name), run.read(r, value.name));
    }
  }
  return outcome;
}

// HEDDLE_BUDGET_RUNS of them, a few by themselves.
TEST(BudgetKept, WhateverTheRouterDoes) {
  const char* wanted = std::getenv("HEDDLE_BUDGET_RUNS");
  const int runs = wanted != nullptr ? std::atoi(wanted) : 12;
  const std::vector<std::vector<std::string>> layouts{{"mesh.dp=2", "mesh.ep=2"},
                                                      {"mesh.dp=4", "mesh.ep=4"},
                                                      {"mesh.dp=4", "mesh.ep=2"},
                                                      {"mesh.dp=2", "mesh.ep=2", "mesh.pp=2"}};
  const std::vector<std::string> schedules{"1f1b", "zb_h1", "dual_pipe_v", "interleaved"};
  const std::vector<std::string> exchanges{"plain", "rank", "node", "merge"};
  int limited = 0, hosted = 0, resident = 0, crowded = 0;
  for (int n = 0; n < runs; ++n) {
    const RandomKey key = RandomKey(17).with(static_cast<uint64_t>(n));
    uint64_t at = 0;
    const auto below = [&](size_t count) { return static_cast<size_t>(key.bits(at++) % count); };
    std::vector<std::string> set = layouts[below(layouts.size())];
    if (set.size() == 3) set.push_back("parallel.schedule=" + schedules[below(schedules.size())]);
    set.push_back("parallel.exchange=" + exchanges[below(exchanges.size())]);
    set.push_back("train.global_batch=32");
    set.push_back("train.sequence_length=8");
    set.push_back("device.dtype=f64");
    set.push_back("device.backend=reference");
    set.push_back(fmt::format("parallel.reuse_lists={}", below(2) == 0));
    config::RunConfig config = config_of(set);
    g_ranks = config.plan.mesh.ep;
    const int64_t plain = least_of(config, ""), layer = least_of(config, "layer");
    const double share = 0.05 + 0.9 * key.uniform(at++);
    config = with_budget(
        config, static_cast<int64_t>(static_cast<double>(layer) + share * static_cast<double>(plain - layer)));
    const auto found = within_budget(config, below(2) == 0);
    ASSERT_TRUE(found);
    plan::Plan plan = train::plan_of(config);
    plan.evaluates = plan.predicts = false;
    plan.memory.recompute.clear();
    const test::Outcome without = hostile_outcome(config.model, plan, int64_t{1} << 28);
    try {
      hostile_outcome(config.model, plan, config.plan.memory.budget_bytes);
    } catch (const std::exception& error) {  // of the rank that it happened to, or of one that waited for it
      EXPECT_NE(std::string(error.what()).find("out of device memory"), std::string::npos) << error.what();
      ++crowded;
    }
    plan.memory = with_choice(config, *found).plan.memory;
    limited += found->recompute().find('>') != std::string::npos;
    hosted += uses_host(plan.memory);
    resident += !plan.memory.weights.empty() || !plan.memory.gradients.empty();
    SCOPED_TRACE(fmt::format("run {} {}: {}", n, fmt::join(set, " "), fmt::join(found->settings, " ")));
    const test::Outcome with = hostile_outcome(config.model, plan, config.plan.memory.budget_bytes);
    const std::map<std::string, std::vector<double>> values(with.values.begin(), with.values.end());  // and slots
    for (const auto& [name, value] : without.values) {
      ASSERT_TRUE(values.contains(name)) << name;
      ASSERT_EQ(values.at(name), value) << name;
    }
  }
  EXPECT_GT(limited, 0);
  EXPECT_GT(hosted, 0);
  RecordProperty("budget_resident", resident);
  RecordProperty("budget_runs", runs);
  RecordProperty("budget_failures_without", crowded);
  std::printf("%d runs within their budget, %d of them out of memory without its choice\n", runs, crowded);
}

}  // namespace
}  // namespace heddle::planner
