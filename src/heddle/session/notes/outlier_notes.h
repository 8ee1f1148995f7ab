// What a run says of a step that it leaves out.
#pragma once

#include <string>

#include "heddle/train/step/result.h"

namespace heddle::session {

/// "step 12: gradient norm 83.1, of at most 45.2: left out". One line.
std::string outlier_note(const train::StepResult& result);

}  // namespace heddle::session
