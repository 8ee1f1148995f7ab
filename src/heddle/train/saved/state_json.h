// The state of a checkpoint as JSON: in the manifest of what lies on disk, and in the seal of what lies in memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "heddle/train/checkpoint.h"

namespace heddle::train {

nlohmann::json json_of(const CheckpointState& state);
/// ConfigError naming `place` where it is none; nlohmann::json::exception where a key is missing or of another
/// type.
CheckpointState state_from(const nlohmann::json& state, const std::string& place);

}  // namespace heddle::train
