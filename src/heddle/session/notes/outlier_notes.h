// Messages about a step that a run leaves out.
#pragma once

#include <string>

#include "heddle/train/controllers/outliers.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

/// One line: "step 12: gradient norm 83.1, of at most 45.2: left out".
std::string outlier_note(const train::StepResult& result, const train::StepLimits& limits);

}  // namespace heddle::session
