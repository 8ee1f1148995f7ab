// Effect of the replicas of hot experts in a step, layer by layer. It has the rows as routers sent them and as
// ranks computed them, and the bytes that the program's own ops move for each replica.
#pragma once

#include <vector>

#include "heddle/observe/figures.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/train/step/expert_placements.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

/// One for each of the result's loads, without figures where the layer has no replicas; empty where no layer has.
std::vector<observe::Figures> layer_replicas(const train::StepResult& result,
                                             const train::ExpertPlacements& placements,
                                             const plan::Lowered& lowered, const plan::Mesh& mesh);

}  // namespace heddle::session
