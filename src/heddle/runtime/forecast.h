// A training step of a plan on a machine that was measured, before it runs: its program walked and timed by the
// simulator, each op as long as the machine's profile says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/cost/machine_profile.h"
#include "heddle/plan/plan.h"
#include "heddle/simulate/simulate.h"

namespace heddle::runtime {

struct ForecastInput {
  std::string backend = "host";
  int threads = 1;  // of a rank's compute stream
  cost::Link over = cost::Link::threads;
  std::vector<int> machine_of;  // of each rank, by the cores that it shares; empty: all on one machine
  std::vector<int> node_of;     // of each rank, as comm::World::node_of; empty: one node
  int64_t capacity_bytes = 0;   // of each rank's arena; 0: unlimited
  double crowding = 1;          // rows of the experts' ranks over balanced ones
  double scalar = 1;            // all durations are multiplied by it: what real steps have taught
  /// Paced mode, as Executor::set_pace.
  std::vector<std::vector<int64_t>> pace_ns;
};

struct Forecast {
  simulate::Simulation simulation;
  double step_us = 0;
  double tokens_per_s = 0;  // of the whole job
  double model_flops = 0;   // of a step, without what is computed again
  double mfu = 0;           // of the machines' best products
  /// Time that the compute streams stood still, mean of the ranks.
  std::map<std::string, double> exposed_us;                               // while only this kind of collective ran
  double bubble_us = 0;                                                   // waiting for other stages
  double host_us = 0;                                                     // while nothing was issued
  int64_t persistent_bytes = 0, peak_live_bytes = 0, reserved_bytes = 0;  // of the rank that holds most
  int largest_rank = 0;

  double exposed_total_us() const;
};

/// OutOfMemory where the arena is too small; InternalError when the program deadlocks.
Forecast forecast(const model::ModelConfig& config, const plan::Plan& plan, const plan::Lowered& lowered,
                  const cost::MachineProfile& profile, const ForecastInput& input);

}  // namespace heddle::runtime
