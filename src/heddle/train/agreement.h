// Checks that all ranks of a job have the same inputs. Ranks that train with other rates, on other data or by
// another program would go on, silently wrong, or wait for each other for ever.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/train/rank_exchange.h"

namespace heddle::train {

/// A rank's inputs, each with its name: "train.learning_rate", "0.001".
using NamedInputs = std::vector<std::pair<std::string, std::string>>;

/// The first thing in which a rank differs from rank 0, the same on all of them: "seed is 1 on rank 0 and 2 on rank
/// 3";
/// "": all agree. All ranks call it together. Costs one number a rank where all agree.
std::string difference(RankExchange& ranks, const NamedInputs& inputs);
/// ConfigError where there is a difference.
void agree(RankExchange& ranks, const NamedInputs& inputs);

}  // namespace heddle::train
