// Woven blocks of real programs: the same ops, and a shorter step where exchanges take time.
#include "heddle/passes/weave.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heddle/plan/plan.h"
#include "heddle/simulate/simulate.h"
#include "tests/support/tiny_models.h"

namespace heddle::plan {
namespace {

model::ModelConfig moe_model() {
  model::ModelConfig c = test::small_model();
  c.num_hidden_layers = 4;
  c.first_k_dense_replace = 0;
  c.num_attention_heads = 4;
  return c;
}

const Degrees kMesh{.dp = 2, .pp = 2, .ep = 2};

double duration_us(const ir::Listing&, const ir::Op& op) {
  const bool exchanges = op.kind() == "dispatch" || op.kind() == "combine";
  return op.def->stream == ir::StreamKind::compute ? 10 : exchanges ? 50 : 0.1;
}

Lowered lowered(const std::string& weave, const std::string& schedule) {
  Plan plan;
  plan.mesh = kMesh;
  plan.microbatches = 16;
  plan.parallel.schedule = schedule;
  plan.parallel.weave = from_word<Weave>(weave);
  plan.durations = duration_us;
  return lower(moe_model(), plan);
}

// What the busiest rank waits in a step in which every exchange lasts as long as five ops that compute.
double waiting_us(const std::string& weave, const std::string& schedule) {
  const Lowered made = lowered(weave, schedule);
  simulate::SimulationInput input;
  input.groups = simulate::groups_of(made.program, Mesh(kMesh));
  input.ranks_differ = false;
  input.duration_us = [&](int, const ir::Issue& issue) {
    return duration_us(made.program.listings[static_cast<size_t>(issue.listing)], *issue.op);
  };
  input.rows = [](int, const ir::Issue&, size_t) { return int64_t{16}; };
  const simulate::Simulation s = simulate::simulate(made.program, input);
  EXPECT_EQ(s.deadlock, "");
  double busy_us = 0;
  for (const simulate::RankResult& rank : s.ranks) {
    for (const simulate::StreamUse& use : rank.streams) {
      if (use.name == "compute") busy_us = std::max(busy_us, use.busy_us);
    }
  }
  return s.step_us - busy_us;
}

TEST(Weave, LayersHideExchangesUnderTheirOwnLayer) {
  EXPECT_LT(waiting_us("layers", "1f1b"), 0.95 * waiting_us("off", "1f1b"));
}

TEST(Weave, PairsHideThemUnderTheOtherMicrobatch) {
  const double off = waiting_us("off", "dual_pipe_v"), layers = waiting_us("layers", "dual_pipe_v");
  EXPECT_LT(layers, off);
  EXPECT_LT(waiting_us("pairs", "dual_pipe_v"), 0.2 * layers);
}

// Two states go from one stage to the next, of one size; lowering verifies which of them is received where.
TEST(Weave, MessagesKeepTheirOrder) {
  model::ModelConfig c = moe_model();
  c.num_nextn_predict_layers = 2;
  for (const char* weave : {"off", "layers", "pairs"}) {
    Plan plan;
    plan.mesh = {.tp = 2, .pp = 2, .ep = 2};
    plan.microbatches = 8;
    plan.parallel.schedule = "interleaved";
    plan.parallel.layout = "E||ttttm|mL";
    plan.parallel.weave = from_word<Weave>(weave);
    EXPECT_NO_THROW(lower(c, plan)) << weave;
  }
}

TEST(Weave, HoldsEachOpOnce) {
  const Lowered plain = lowered("off", "zb_h1"), woven = lowered("pairs", "zb_h1");
  const auto sorted = [](const ir::Block& block) {
    std::vector<std::pair<int, uint32_t>> steps;
    for (const ir::Step& step : block.steps) steps.emplace_back(block.listings[step.slot], step.op);
    std::sort(steps.begin(), steps.end());
    return steps;
  };
  std::vector<std::pair<int, uint32_t>> before, after;
  for (const bool of_woven : {false, true}) {
    const ir::StepProgram& program = (of_woven ? woven : plain).program;
    auto& all = of_woven ? after : before;
    for (const ir::Action& action : program.actions_of(0)) {
      const auto steps = sorted(program.blocks[static_cast<size_t>(action.block)]);
      all.insert(all.end(), steps.begin(), steps.end());
    }
    std::sort(all.begin(), all.end());
  }
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace heddle::plan
