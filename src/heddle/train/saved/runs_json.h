// Runs as manifests, indices and seals have them: [whole, count, stride, times] of each.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "heddle/train/saved/runs.h"

namespace heddle::train {

nlohmann::json json_of(const std::vector<Runs>& runs);

/// The runs as the JSON has them. They are not checked yet, so that `local` of all is 0. nlohmann::json::exception
/// where it has none.
std::vector<Runs> runs_from(const nlohmann::json& told);

}  // namespace heddle::train
