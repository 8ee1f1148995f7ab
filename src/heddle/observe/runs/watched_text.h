// Text that `heddle watch` shows of a run below its bar: facts, and curves drawn with letters.
#pragma once

#include <string>
#include <vector>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

/// Lines with their ends, at most `columns` wide where they are curves.
std::string watched_text(const std::vector<StepMetrics>& steps, int columns, bool unicode);

}  // namespace heddle::observe
