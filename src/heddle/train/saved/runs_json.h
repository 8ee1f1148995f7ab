// Runs as manifests, indices and seals have them: [whole, count, stride, times] of each.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "heddle/train/saved/runs.h"

namespace heddle::train {

nlohmann::json json_of(const std::vector<Runs>& runs);

/// As they are told. Nothing of it is looked at yet, so that `local` of all is 0. nlohmann::json::exception where
/// it is none.
std::vector<Runs> runs_from(const nlohmann::json& told);

}  // namespace heddle::train
