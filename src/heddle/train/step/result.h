// What one step of training gave, for the whole job and the same on every rank.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heddle/train/step/expert_homes.h"
#include "heddle/train/step/outliers.h"
#include "heddle/train/step/statistics.h"

namespace heddle::train {

/// What a rank has worked in a step, its compute stream without waits; zeros where the device does not tell.
struct RankWork {
  double forward_s = 0, backward_s = 0, update_s = 0;  // of ops whose work is the same every step
  double experts_s = 0, expert_rows = 0;               // of those whose work goes by rows, and the rows
};

struct StepResult {
  int64_t step = 0;  // which it was, from 1
  std::vector<Reading> statistics;
  double learning_rate = 0;
  double bias_rate = 0;
  int64_t tokens = 0;
  double seconds = 0;                               // of the slowest rank
  double flops = 0;                                 // matrix products of the step
  int64_t peak_live_bytes = 0, reserved_bytes = 0;  // of the rank's arena that holds most
  int64_t grown_bytes = 0;                          // beyond its capacity, of the arena that grew most
  int grown_rank = 0;                               // whose that is
  std::vector<RankWork> work;                       // by rank
  bool attempted = false;                           // its update ran ahead of the norm
  bool taken_back = false;                          // and was done again
  bool skipped = false;                             // it was left out as an outlier
  StepLimits limits;                                // by which that was judged
  ExpertHomes homes;                                // where experts lived in it
  std::optional<MoveFigures> moves;                 // as it ended; none of a step that looked at none

  /// Summed over layers and depths; 0 where the step has no such statistic.
  double total(const model::StatisticKind& kind) const;
  double next_token_loss() const { return total(model::kNextTokenLoss); }
  /// That which the step is about.
  double loss() const;
  double sequence_aux_loss() const { return total(model::kSequenceAuxLoss); }
  double z_loss() const { return total(model::kZLoss); }
  double gradient_norm() const { return total(model::kGradientNorm); }
  std::vector<double> depth_losses() const;  // of multi-token prediction, by depth

  /// Rows routed to each expert, of one MoE layer.
  struct Load {
    int layer = 0;
    std::span<const double> rows_E;
  };
  std::vector<Load> loads() const;  // by layer
  /// Of the choices of each MoE layer, by layer, the part that found no place; empty without a capacity.
  struct Dropped {
    int layer = 0;
    double share = 0;
  };
  std::vector<Dropped> dropped() const;
  /// Highest over mean load of the worst layer; 1 when there is no MoE layer.
  double imbalance() const;
};

/// What a rank measures of its own step.
struct RankFigures {
  double seconds = 0;
  int64_t peak_live_bytes = 0, reserved_bytes = 0, grown_bytes = 0;  // of its arena
  RankWork work;
};
/// Puts a rank's behind its row: a place for each rank, zeros in those of the others.
void append(std::vector<double>& row, const RankFigures& own, int rank, int ranks);
/// Those that stand at the end of the rows' sum: the worst of what the result has once.
void take_figures(StepResult& result, std::span<const double> figures);

}  // namespace heddle::train
