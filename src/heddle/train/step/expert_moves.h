// Chooses the experts that change their homes as a step ends, by the load of the run's experts, every so many steps
// (docs/features/expert_migration.md). The choice is the same on all ranks, for all its inputs are.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "heddle/comm/placement/move_choice.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/train/controllers/expert_history.h"
#include "heddle/train/step/expert_placements.h"

namespace heddle::train {

/// Figures of the moves that were evaluated and made as a step ended.
struct MoveFigures {
  int64_t moved = 0, even = 0, not_worth = 0;         // layers that ended so (comm::MoveOutcome)
  int64_t experts = 0;                                // moved experts,
  double bytes = 0;                                   // with so much state of all ranks that hold them
  double predicted_gain_s = 0, predicted_cost_s = 0;  // a step, and once: over all layers that moved any
};

class ExpertMoves {
 public:
  /// Has no plan: nothing ever moves.
  ExpertMoves() = default;
  /// `node_of`: of each rank of the world; empty: one for all.
  ExpertMoves(const model::ModelConfig& model, const plan::Plan& plan, const plan::Lowered& lowered,
              const plan::Mesh& mesh, const std::vector<int>& node_of);

  struct Next {
    std::map<int, std::vector<int32_t>> placements;  // placement of the layers whose experts move, then
    MoveFigures figures;
  };
  /// Moves as step number `step` ends; none in a step in which nothing is evaluated.
  std::optional<Next> at(int64_t step, const ExpertHistory& history, const ExpertPlacements& placements) const;

 private:
  struct Layer {
    comm::Holders holders;
    comm::MoveRules rules;
    double expert_bytes = 0;  // bytes of all of an expert's state, once
  };
  int64_t every_ = 0;
  double microbatches_ = 1;  // microbatches of a step
  std::map<int, Layer> layers_;
};

}  // namespace heddle::train
