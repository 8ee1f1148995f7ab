// What of a microbatch a pipeline rank's order runs apart, as passes that make values again or send them away need
// to know.
#pragma once

#include <vector>

#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

/// Whether a pipeline rank runs input and weight gradients of a microbatch apart.
bool defers_weight_gradients(const std::vector<Action>& order);

/// Of each of a pipeline rank's stages: whether some action always stands between a microbatch's F and its I.
std::vector<bool> stands_apart(const std::vector<Action>& order, const std::vector<int>& own);

/// Of each of a pipeline rank's stages: whether a microbatch's I always follows its F at once.
std::vector<bool> goes_back_at_once(const std::vector<Action>& order, const std::vector<int>& own);

}  // namespace heddle::schedule
