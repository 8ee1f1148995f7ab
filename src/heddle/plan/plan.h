// A plan: everything a run needs to know besides the model and the data. Lowering turns both into a step program.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heddle/ir/program.h"
#include "heddle/model/exchange.h"
#include "heddle/model/model_config.h"
#include "heddle/model/parameter.h"
#include "heddle/passes/fuse.h"
#include "heddle/passes/update.h"
#include "heddle/passes/weave.h"
#include "heddle/plan/layout.h"
#include "heddle/plan/mesh.h"
#include "heddle/schedule/schedule.h"

namespace heddle::plan {

/// What passes reckon with where nothing was measured: products, memory, copies between device and host.
struct DeviceRates {
  double flops_per_us = 500e3, bytes_per_us = 20e3, host_bytes_per_us = 10e3;
  bool operator==(const DeviceRates&) const = default;
};

struct Plan {
  Degrees mesh;
  int microbatches = 1;   // of one rank, a step
  int64_t sequences = 1;  // a microbatch, shared by the ranks of tp × cp
  int64_t sequence_length = 128;
  std::string schedule = "1f1b";            // a name that schedule/generators knows
  std::optional<schedule::Schedule> order;  // an order of one's own instead
  int chunks = 0;                           // stages a rank where the schedule leaves it open; 0: its usual number
  int group = 0;                // microbatches that an interleaved schedule takes at a time; 0: as many as ranks
  std::string layout = "even";  // of the layers on the stages (plan/layout)
  std::string weave = "pairs";  // off; layers: each block alone; pairs: those and the schedule's fused pairs
  DeviceRates rates;
  passes::Durations durations;     // for weaving and offload; null: nominal ones, of `rates`
  std::string context = "gather";  // how attention meets the keys of other cp ranks: gather, ulysses or ring
  Dtype dtype = Dtype::f32;        // of weights and activations
  std::set<std::string> fusions{passes::fusion_names().begin(), passes::fusion_names().end()};
  bool exact_sums = false;   // weight gradients that no layout changes (passes/exact_sums)
  model::Exchange exchange;  // of the experts' rows
  std::string recompute;     // what the backward makes again (passes/op_groups)
  std::string offload;       // what waits for the backward on the host (passes/offload)
  bool reuse_lists = true;   // the counts of a MoE layer's rows go to the host once a microbatch, not four times
  bool evaluates = false;    // adds the forward-only program of a batch (one microbatch) with its losses
  bool predicts = false;     // adds the program of one sequence's logits
  passes::UpdateOptions update;
  /// Size of the backend's packed form of a weight, 0 to leave it in rows. Null: nothing is packed.
  std::function<int64_t(const ir::Value&)> packed_bytes;

  int ranks() const { return mesh.ranks(); }
  /// The same on one rank: no mesh, and nothing that speaks of its pipeline.
  Plan on_one_rank() const;
};

struct Lowered {
  ir::StepProgram program;
  schedule::Placement placement;                          // of the pipeline's stages
  std::vector<std::vector<model::Parameter>> parameters;  // by pipeline rank
};

/// The pipeline schedule that a plan asks for. ConfigError when there is none such.
schedule::Schedule schedule_of(const Plan& plan);

/// The step program of all ranks, verified. ConfigError when the plan does not fit the model.
Lowered lower(const model::ModelConfig& config, const Plan& plan);

}  // namespace heddle::plan
