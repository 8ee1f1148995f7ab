// Whether all ranks of a job were told the same: ranks that train with other rates, on other data or by another
// program would go on, silently wrong, or wait for each other for ever.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/train/rank_exchange.h"

namespace heddle::train {

/// What a rank was told, each with its name: "train.learning_rate", "0.001".
using Told = std::vector<std::pair<std::string, std::string>>;

/// All ranks call it together. ConfigError, the same on all of them, naming the first thing in which a rank differs
/// from rank 0. Costs one number a rank where all agree.
void agree(RankExchange& ranks, const Told& told);

}  // namespace heddle::train
