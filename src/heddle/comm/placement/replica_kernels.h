// The communication kernels of copies of experts, and of experts that move.
#pragma once

#include "heddle/comm/collectives.h"
#include "heddle/comm/placement/placement.h"

namespace heddle::comm {

/// As the attributes of place_copies say.
PlacementRules placement_rules(const ir::Attributes& a);

const std::vector<Collective>& placing_kernels();  // place_copies, recall_copies, place_rows, place_experts
const std::vector<Collective>& replica_kernels();  // fetch_copies, return_copies
const std::vector<Collective>& moving_kernels();   // move_experts

}  // namespace heddle::comm
