#include "heddle/simulate/consecutive.h"

#include <algorithm>

namespace heddle::simulate {

namespace {
constexpr int kSteps = 4;  // the last of so many: before it stages come to stand apart as their order has it
}  // namespace

ir::StepProgram consecutive(const ir::StepProgram& program, int steps) {
  ir::StepProgram made = program;
  made.blocks.push_back({.name = "next", .listings = {}, .steps = {}, .does = ir::Block::Does::restarts});
  const ir::Action next{static_cast<int>(made.blocks.size()) - 1, {}};  // sums begin anew
  for (std::vector<ir::Action>& actions : made.actions[static_cast<size_t>(ir::Purpose::train)]) {
    const std::vector<ir::Action> once = actions;
    for (int i = 1; i < steps; ++i) {
      actions.push_back(next);
      actions.insert(actions.end(), once.begin(), once.end());
    }
  }
  return made;
}

double steady_step_us(const ir::StepProgram& program, const SimulationInput& input) {
  const ir::StepProgram steps = consecutive(program, kSteps);
  SimulationInput once = input;
  once.steps = 1;
  once.capacity_bytes = once.limit_bytes = once.host_capacity_bytes = 0;  // whether one fits is known by itself
  once.keep_peak = once.caching_allocator = false;
  const Simulation simulation = simulate(steps, once);
  HEDDLE_CHECK(simulation.deadlock.empty(), "the program can't go on:\n{}", simulation.deadlock);
  double last_us = 0, before_us = 0;
  for (const RankResult& rank : simulation.ranks) {
    const size_t count = rank.ops.size() / kSteps;  // all of them decide alike
    HEDDLE_CHECK(rank.ops.size() % kSteps == 0, "{} steps of {} ops", kSteps, rank.ops.size());
    for (size_t i = (kSteps - 2) * count; i < rank.ops.size(); ++i) {
      const SimulatedOp& op = rank.ops[i];
      if (program.listings[static_cast<size_t>(op.listing)].ops[op.op].trails) continue;
      double& end_us = i < (kSteps - 1) * count ? before_us : last_us;
      end_us = std::max(end_us, op.end_us);
    }
  }
  return last_us - before_us;
}

}  // namespace heddle::simulate
