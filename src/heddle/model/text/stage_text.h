// What the model's writer hands to the passes.
#pragma once

#include <vector>

#include "heddle/ir/stage.h"
#include "heddle/model/parameter.h"
#include "heddle/model/statistic.h"

namespace heddle::model {

/// A stage's forward text with its parameters, in the order in which they are used, and its statistics.
struct StageText {
  ir::Stage stage;
  std::vector<Parameter> parameters;
  std::vector<Statistic> statistics;
};

}  // namespace heddle::model
