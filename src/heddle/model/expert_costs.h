// Costs of an expert's row and of an expert's replica on a rank, in picoseconds. Replicas
// (comm/placement/placement.h) and homes (comm/placement/expert_placement.h) are weighed by these numbers.
#pragma once

#include <cstdint>

#include "heddle/base/dtype.h"
#include "heddle/model/dispatcher.h"
#include "heddle/model/model_config.h"

namespace heddle::model {

/// Forward and backward together. A row: three products of its expert forward, six backward; four crossings, over a
/// link within a node or between nodes. A copy: two crossings of its weights and one of its gradients.
struct ExpertCosts {
  int64_t row_ps = 1, row_within_ps = 0, row_across_ps = 0, replica_within_ps = 0, replica_across_ps = 0;
};

/// The properties of a rank, besides the exchange's rates.
struct ExpertRank {
  int slices = 1;  // ranks that cut the width of the same experts
  Dtype dtype = Dtype::f32;
  bool exact_sums = false;
  double flops_per_us = 500e3;
};

ExpertCosts expert_costs(const ModelConfig& config, const Dispatcher& exchange, const ExpertRank& rank);

}  // namespace heddle::model
