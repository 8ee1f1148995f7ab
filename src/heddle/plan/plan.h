// A plan: everything a run needs to know besides the model and the data. Lowering turns both into a step program.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "heddle/cost/product_ways.h"
#include "heddle/ir/program.h"
#include "heddle/model/dispatcher.h"
#include "heddle/model/model_config.h"
#include "heddle/model/parameter.h"
#include "heddle/model/statistic.h"
#include "heddle/model/step_shape.h"
#include "heddle/passes/weave.h"
#include "heddle/plan/choices.h"
#include "heddle/plan/layout.h"
#include "heddle/schedule/schedule.h"

namespace heddle::plan {

/// The rates that passes assume: products, memory, copies between device and host, messages, and the host's
/// processor at its own memory. Nominal, or as measured.
struct DeviceRates {
  double flops_per_us = 500e3, bytes_per_us = 20e3, host_bytes_per_us = 10e3;
  double message_bytes_per_us = 0, message_latency_us = 0;  // of all links; 0: those of the exchange
  double processor_bytes_per_us = 20e3;
  double message_share = 0;  // of a device's units that compute, taken by a message while it is under way
  cost::ProductWays ways;    // of products over groups
  bool operator==(const DeviceRates&) const = default;
};

struct Plan : Choices, model::StepShape {
  int microbatches = 1;  // of one rank, a step
  /// Other numbers of microbatches that a step may have, below `microbatches` (a batch that grows).
  std::vector<int> fewer_microbatches;
  std::optional<schedule::Schedule> order;  // instead of the one that parallel.schedule names
  DeviceRates rates;
  passes::Durations durations;  // for weaving and offload; null: nominal ones, of `rates`
  bool evaluates = false;       // adds the forward-only program of a batch (one microbatch) with its losses
  bool predicts = false;        // adds the program of one sequence's logits
  bool launches_cost = false;   // each op of the backend is a launch, which takes longer than a small update
  bool turns_weights = false;   // its products in eight bits read a weight turned for the input gradient
  /// Size of the backend's packed form of a weight, 0 to leave it in rows. Null: nothing is packed.
  std::function<int64_t(const ir::Value&)> packed_bytes;

  int ranks() const { return mesh.ranks(); }
  /// This plan on one rank: no mesh, and nothing that speaks of its pipeline.
  Plan on_one_rank() const;
  /// This step done plainly: on one rank, each switch that keeps every bit as it is by default.
  Plan plain() const;
};

/// The effect of a lowering pass on the listings of one purpose.
struct PassNote {
  std::string_view name;
  ir::Purpose purpose = ir::Purpose::train;
  size_t ops_before = 0, ops_after = 0;
  double seconds = 0;
};

struct Lowered {
  ir::StepProgram program;
  schedule::Placement placement;                          // of the pipeline's stages
  std::vector<std::vector<model::Parameter>> parameters;  // by pipeline rank
  std::vector<std::vector<model::Statistic>> statistics;  // by listing of the program
  std::vector<PassNote> passes;                           // in the order in which they ran
};

/// The pipeline schedule that a plan asks for. ConfigError when there is none such.
schedule::Schedule schedule_of(const Plan& plan);

/// ConfigError when the plan does not fit the model.
void check(const model::ModelConfig& config, const Plan& plan);

/// The step program of all ranks, verified after each pass and as a whole. ConfigError when the plan does not fit
/// the model. With the name of a pass, the training listings as that one left them, without actions to run.
Lowered lower(const model::ModelConfig& config, const Plan& plan, std::string_view until = "");
/// The names that `until` accepts.
std::vector<std::string> pass_names();

}  // namespace heddle::plan
