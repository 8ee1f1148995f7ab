// A program on its way: what the passes depend on, and what they change.
#pragma once

#include <vector>

#include "heddle/model/text/rank_text.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/plan/shared_parameters.h"

namespace heddle::plan {

struct Draft {
  const model::ModelConfig& model;
  const Plan& plan;
  const Mesh& mesh;
  const schedule::Schedule& order;
  const passes::Durations& durations;
  ir::Purpose purpose = ir::Purpose::train;

  std::vector<model::RankText> texts;         // by pipeline rank; they move into the program once they are written
  SharedParameters shared;                    // what join_copies finds
  std::vector<std::vector<ir::Op>> restores;  // by pipeline rank: what update returns
  std::vector<ir::Listing> snapshots;         // by pipeline rank: what copies its state (passes/state/snapshot)
  ir::StepProgram& program;

  bool trains() const { return purpose == ir::Purpose::train; }
};

}  // namespace heddle::plan
