// The result of a training step, for the whole job and the same on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heddle/observe/figures.h"
#include "heddle/train/step/reading.h"

namespace heddle::train {

/// A rank's work in a step, its compute stream without waits; zeros where the device does not measure it.
struct RankWork {
  double forward_s = 0, backward_s = 0, update_s = 0;  // ops whose work is the same every step
  double experts_s = 0, expert_rows = 0;               // ops whose work depends on rows, and the rows
};

struct StepResult {
  int64_t step = 0;  // number of the step, from 1
  std::vector<Reading> statistics;
  observe::Figures figures;  // figures of the controllers
  int64_t tokens = 0;
  double seconds = 0;                               // time of the slowest rank
  double flops = 0;                                 // matrix products of the step
  int64_t peak_live_bytes = 0, reserved_bytes = 0;  // bytes of the arena of the rank that holds most
  int64_t grown_bytes = 0;                          // growth beyond its capacity, of the arena that grew most
  int grown_rank = 0;                               // the rank of that arena
  double max_logit = 0;                             // the largest attention logit that is followed; 0: none is
  std::vector<RankWork> work;                       // work by rank

  /// Summed over layers and depths; 0 where the step has no such statistic.
  double total(const model::StatisticKind& kind) const;
  double next_token_loss() const { return total(model::kNextTokenLoss); }
  /// The loss that the step is about.
  double loss() const;
  double sequence_aux_loss() const { return total(model::kSequenceAuxLoss); }
  double z_loss() const { return total(model::kZLoss); }
  double gradient_norm() const { return total(model::kGradientNorm); }
  /// The program has left it out as an outlier.
  bool is_skipped() const { return total(model::kSkipped) > 0; }
  std::vector<double> depth_losses() const;  // losses of multi-token prediction, by depth

  /// Rows routed to each expert of one MoE layer.
  struct Load {
    int layer = 0;
    std::span<const double> rows_E;
  };
  std::vector<Load> loads() const;  // by layer
  /// The share of each MoE layer's choices that found no place, by layer; empty without a capacity.
  struct Dropped {
    int layer = 0;
    double share = 0;
  };
  std::vector<Dropped> dropped() const;
  /// Highest over mean load of the worst layer; 1 when there is no MoE layer.
  double imbalance() const;
  /// Times that a second round took a rank's rows of a layer and microbatch.
  double second_rounds() const;
};

}  // namespace heddle::train
