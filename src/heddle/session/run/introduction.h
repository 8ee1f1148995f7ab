// A run's introduction of itself, before its first step.
#pragma once

#include <string>
#include <vector>

#include "heddle/session/run/context.h"

namespace heddle::session {

/// Rank 0's lines on model, layout, data, memory and folder.
std::vector<std::string> introduction(const RunContext& run);

}  // namespace heddle::session
