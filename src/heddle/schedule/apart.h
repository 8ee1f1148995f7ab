// The parts of a microbatch that a pipeline rank's order runs apart, for passes that make values again or send them
// away.
#pragma once

#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// True if a pipeline rank runs input and weight gradients of a microbatch apart.
bool defers_weight_gradients(const std::vector<Action>& order);

/// For each of a pipeline rank's stages, true if some action always stands between a microbatch's F and its I.
std::vector<bool> stands_apart(const std::vector<Action>& order, const std::vector<int>& own);

/// For each of a pipeline rank's stages, true if a microbatch's I always follows its F at once.
std::vector<bool> goes_back_at_once(const std::vector<Action>& order, const std::vector<int>& own);

}  // namespace heddle::schedule
