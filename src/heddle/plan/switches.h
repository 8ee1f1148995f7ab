// The rows of plan::Choices: every switch of a plan, and the numbers beside them.
#pragma once

#include "heddle/plan/choices.h"
#include "heddle/plan/setting.h"

namespace heddle::plan {

/// Section by section, in the order in which they are written.
const std::vector<Setting<Choices>>& settings();

}  // namespace heddle::plan
