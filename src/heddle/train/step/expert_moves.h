// Which experts change their homes as a step ends: by what a run knows of its experts' load, every so many steps
// (docs/features/expert_migration.md). The same on all ranks, for all that it goes by is.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "heddle/comm/placement/home_choice.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/train/step/expert_history.h"
#include "heddle/train/step/expert_homes.h"

namespace heddle::train {

class ExpertMoves {
 public:
  /// Of no plan: nothing ever moves.
  ExpertMoves() = default;
  /// `node_of`: of each rank of the world; empty: one for all.
  ExpertMoves(const model::ModelConfig& model, const plan::Plan& plan, const plan::Lowered& lowered,
              const plan::Mesh& mesh, const std::vector<int>& node_of);

  struct Next {
    std::map<int, std::vector<int32_t>> homes;  // of the layers whose experts move, then
    MoveFigures figures;
  };
  /// As step number `step` ends; none in a step in which nothing is looked at.
  std::optional<Next> at(int64_t step, const ExpertHistory& history, const ExpertHomes& homes) const;

 private:
  struct Layer {
    comm::Holders holders;
    comm::MoveRules rules;
    double expert_bytes = 0;  // of all that is its state, once
  };
  int64_t every_ = 0;
  double microbatches_ = 1;  // of a step
  std::map<int, Layer> layers_;
};

}  // namespace heddle::train
