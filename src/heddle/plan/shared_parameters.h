// Parameters that several ranks of a pipeline hold: tied embeddings, those of multi-token prediction, second copies
// of stages.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "heddle/model/text/rank_text.h"
#include "heddle/schedule/schedule.h"

namespace heddle::plan {

struct SharedParameters {
  std::set<std::string> unlike;              // names of those that not all of their ranks use alike
  std::map<std::string, std::string> order;  // of those with three uses or more: see the op reduce_gradients
};

/// Gives each such parameter its copies on all ranks that hold it, the one with the earliest stage first. `texts`
/// are the listings of the pipeline's ranks.
SharedParameters join_copies(std::vector<model::RankText>& texts, const schedule::Placement& placement);

}  // namespace heddle::plan
