// Imbalance of a step's rows on the ranks that share experts: as routers sent them, and as ranks computed them,
// which replicas of hot experts make more even.
#pragma once

#include <optional>

#include "heddle/plan/mesh.h"
#include "heddle/train/step/expert_placements.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

/// The rows of the fullest rank over the mean, of all layers together.
struct FullestRank {
  double routed = 1, computed = 1;
};
/// None where experts stand on one rank, or the device does not tell what a rank has computed.
std::optional<FullestRank> fullest_rank(const train::StepResult& result, const train::ExpertPlacements& placements,
                                        const plan::Mesh& mesh);

}  // namespace heddle::session
