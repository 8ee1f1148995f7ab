// A statistic of a step (model/statistic.h), of the whole job.
#pragma once

#include <vector>

#include "heddle/model/statistic.h"

namespace heddle::train {

/// The value of a statistic. A loss is the mean over labels, over sequences (auxiliary) or over tokens (z), before
/// the weight that it has in the step's loss.
struct Reading {
  const model::StatisticKind* kind = nullptr;
  int of = -1;  // the layer, or the depth
  std::vector<double> values;
};

}  // namespace heddle::train
