// Predicts a training step of a plan on a machine that was measured. The simulator walks and times its program,
// each op as long as the machine's profile says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/cost/machine_profile.h"
#include "heddle/plan/plan.h"
#include "heddle/simulate/simulate.h"

namespace heddle::runtime {

/// Unknowns before a step runs, drawn.
struct Uncertainty {
  double spread = 0;                            // spread of the experts' shares, as cost::Routing; 0: balanced
  std::vector<std::vector<double>> counted_LE;  // instead: rows that a run has counted, by MoE layer and expert
  std::string counted_in;                       // the file they come from
  double jitter = 0;                            // relative deviation of each op's duration
  int draws = 1;
  uint64_t seed = 1;
};

struct PredictionInput {
  std::string backend = "host";
  int threads = 1;  // threads of a rank's compute stream
  cost::Link over = cost::Link::threads;
  std::vector<int> machine_of;  // machine of each rank, by the cores that it shares; empty: all on one machine
  std::vector<int> node_of;     // node of each rank, as comm::World::node_of; empty: one node
  int cards = 1;                // of a node to others: a rank alone has the rate of one, all ranks that of the node
  int64_t capacity_bytes = 0;   // size of each rank's arena; 0: unlimited
  int64_t limit_bytes = 0;      // bytes to which it may grow beyond; 0: not at all
  double crowding = 1;          // rows of the experts' ranks over balanced ones
  double scalar = 1;            // factor of all durations, which real steps have taught
  /// Least duration of each op, by (listing, op), asleep; empty: none.
  std::vector<std::vector<int64_t>> pace_ns;
  Uncertainty uncertainty;
  /// Also counts the bytes that a caching allocator would hold.
  bool caching_allocator = false;
};

/// Several draws of a step, each sorted by itself.
struct Draws {
  std::vector<double> step_us;
  std::vector<int64_t> peak_live_bytes;  // bytes of the rank that holds most
  int out_of_memory = 0;                 // draws whose rows the arena has no room for

  /// The value that a part of the draws does not exceed.
  static double quantile(const std::vector<double>& sorted, double part);
};

/// A predicted step; with several draws, the one whose step is the median.
struct StepPrediction {
  simulate::Simulation simulation;
  double step_us = 0;
  double tokens_per_s = 0;  // rate of the whole job
  double model_flops = 0;   // FLOPs of a step, without what is computed again
  double mfu = 0;           // share of the machines' best products
  /// Time that the compute streams stood still, mean of the ranks.
  std::map<std::string, double> exposed_us;                               // while only this kind of collective ran
  double bubble_us = 0;                                                   // waiting for other stages
  double host_us = 0;                                                     // while nothing was issued
  int64_t persistent_bytes = 0, peak_live_bytes = 0, reserved_bytes = 0;  // bytes of the rank that holds most
  int64_t caching_reserved_bytes = 0;                                     // likewise, when asked for
  int largest_rank = 0;
  std::string exchange;  // topologies that the experts' exchanges take; empty: there is none
  Draws draws;

  double exposed_total_us() const;
};

/// OutOfMemory where the arena is too small for every draw; InternalError when the program deadlocks.
StepPrediction predict_step(const model::ModelConfig& config, const plan::Plan& plan, const plan::Lowered& lowered,
                            const cost::MachineProfile& profile, const PredictionInput& input);

}  // namespace heddle::runtime
