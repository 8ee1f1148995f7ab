// Layouts for which train.exact_sums holds: they give one rank's weights bit for bit.
#pragma once

#include <string>
#include <vector>

#include "heddle/model/model_config.h"
#include "heddle/plan/mesh.h"

namespace heddle::config {

/// Why exact sums would not give one rank's bits in this layout, and what they need; empty where they do.
/// `node_of`: the node of each rank of the job; empty: all on one.
std::string why_not_exact(const model::ModelConfig& model, const plan::Degrees& degrees,
                          const std::vector<int>& node_of = {});

}  // namespace heddle::config
