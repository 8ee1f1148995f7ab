// Where train.exact_sums holds: the layouts that give one rank's weights bit for bit.
#pragma once

#include <string>
#include <vector>

#include "heddle/plan/plan.h"

namespace heddle::train {

/// Why exact sums would not give one rank's bits in this layout, and what they need; empty where they do.
/// `node_of`: the node of each rank of the job; empty: all on one.
std::string why_not_exact(const model::ModelConfig& model, const plan::Plan& plan,
                          const std::vector<int>& node_of = {});

/// ConfigError where the plan asks for exact sums in a layout in which they don't hold.
void check_exact_sums(const model::ModelConfig& model, const plan::Plan& plan,
                      const std::vector<int>& node_of = {});

}  // namespace heddle::train
