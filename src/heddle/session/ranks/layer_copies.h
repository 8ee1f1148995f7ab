// What copies of hot experts came to in a step, layer by layer: rows as routers sent them and as ranks computed
// them, and the bytes that the program's own ops move for each copy.
#pragma once

#include <vector>

#include "heddle/observe/step_metrics.h"
#include "heddle/plan/mesh.h"
#include "heddle/plan/plan.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

/// In the order of the result's loads; empty where the program chooses no copies.
std::vector<observe::LayerCopies> layer_copies(const train::StepResult& result, const plan::Lowered& lowered,
                                               const plan::Mesh& mesh);

}  // namespace heddle::session
