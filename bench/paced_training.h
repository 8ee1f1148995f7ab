// Training of a narrow model by ranks as threads in the paced mode: the kernels and exchanges run, and each op
// lasts as long as the plan's durations say, asleep, so that ranks which share cores behave as if each had its own.
#pragma once

#include <algorithm>
#include <vector>

#include "heddle/base/statistics.h"
#include "heddle/runtime/dry_run.h"
#include "tests/simulate/tiny_step.h"
#include "tests/support/paced_time.h"
#include "tests/support/set_pace.h"

namespace heddle::bench {

/// Steps that do the same each time. Makes one without a pace: caches and memory are warm behind it.
class PacedTraining {
 public:
  /// `arena_bytes`: of each rank. The plan has durations.
  PacedTraining(const model::ModelConfig& c, const plan::Plan& plan, int64_t arena_bytes)
      : run_(c, plan, "host", arena_bytes, 1, false), batches_(test::tiny_batches(c, plan, 3)) {
    const std::vector<double> table = model::rope_table(c, plan.sequence_length);
    run_.fill([&](const model::Parameter& p, int64_t i) {
      if (p.start == model::Parameter::Start::rope_table) return table[static_cast<size_t>(i)];
      return p.start == model::Parameter::Start::ones
                 ? 1.0
                 : 0.05 * RandomKey(2).with(p.name).normal(static_cast<uint64_t>(i));
    });
    for (test::Batch& batch : batches_) batch.hyper = {0, 0.1, 0.05};
    run_.run(batches_);
    std::vector<std::vector<int64_t>> pace_ns;
    for (const ir::Listing& listing : run_.lowered().program.listings) {
      pace_ns.emplace_back();
      for (const ir::Op& op : listing.ops)
        pace_ns.back().push_back(static_cast<int64_t>(plan.durations(listing, op) * 1e3));
    }
    for (int r = 0; r < plan.ranks(); ++r) {
      set_pace(run_.executor(r), pace_ns);
      live_bytes_ = std::max(live_bytes_, run_.executor(r).walk().storage().peak_live_bytes());
    }
  }

  void step() {
    const PacedTimer timer;
    run_.run(batches_);
    const PacedTime took = timer.elapsed();
    seconds_.push_back(static_cast<double>(took.wall_ns) * 1e-9);
    use_ = std::max(use_, took.processor_use());
  }
  /// The median of the steps.
  double seconds() const { return median(seconds_); }
  /// Of the cores, in the busiest step.
  double use() const { return use_; }
  /// Of the rank that holds most.
  int64_t live_bytes() const { return live_bytes_; }

 private:
  test::TinyRun run_;
  std::vector<test::Batch> batches_;
  double use_ = 0;
  int64_t live_bytes_ = 0;
  std::vector<double> seconds_;
};

struct SimulatedStep {
  double us = 0;
  int64_t live_bytes = 0;  // at its peak, of the rank that holds most
};

/// The simulator's step, by the plan's durations. `free`: with messages that take no time.
inline SimulatedStep simulated_step(const model::ModelConfig& c, const plan::Plan& plan, bool free = false) {
  const plan::Lowered lowered = plan::lower(c, plan);
  simulate::SimulationInput input;
  input.groups = simulate::groups_of(lowered.program, plan::Mesh(plan.mesh));
  input.scratch_bytes = runtime::kernel_scratch(lowered.program, "host");
  input.ranks_differ = false;
  input.duration_us = [&](int, const ir::Issue& issue) {
    if (free && ir::communicates(*issue.op->def)) return 0.0;
    return plan.durations(lowered.program.listings[static_cast<size_t>(issue.listing)], *issue.op);
  };
  const simulate::Simulation found = simulate::simulate(lowered.program, input);
  SimulatedStep step{found.step_us, 0};
  for (const simulate::RankResult& rank : found.ranks)
    step.live_bytes = std::max(step.live_bytes, rank.peak_live_bytes);
  return step;
}

inline double simulated_us(const model::ModelConfig& c, const plan::Plan& plan, bool free = false) {
  return simulated_step(c, plan, free).us;
}

}  // namespace heddle::bench
