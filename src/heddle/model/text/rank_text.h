// The result that the model's writer hands to the passes.
#pragma once

#include <vector>

#include "heddle/ir/listing.h"
#include "heddle/model/parameter.h"
#include "heddle/model/statistic.h"

namespace heddle::model {

/// A listing's forward text with its parameters, in the order in which they are used, and its statistics.
struct RankText {
  ir::Listing listing;
  std::vector<Parameter> parameters;
  std::vector<Statistic> statistics;
};

}  // namespace heddle::model
