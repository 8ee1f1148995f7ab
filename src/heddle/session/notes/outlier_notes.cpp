#include "heddle/session/notes/outlier_notes.h"

#include <cmath>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::session {

std::string outlier_note(const train::StepResult& result, const train::StepLimits& limits) {
  std::vector<std::string> why;
  const auto judge = [&](const char* what, double value, double limit) {
    if (!std::isfinite(value)) {
      why.push_back(fmt::format("{} {}", what, value));
    } else if (value > limit) {
      why.push_back(fmt::format("{} {:.4g}, of at most {:.4g}", what, value, limit));
    }
  };
  judge("gradient norm", result.gradient_norm(), limits.norm);
  judge("loss", result.loss(), limits.loss);
  return fmt::format("step {}: {}: left out", result.step, fmt::join(why, "; "));
}

}  // namespace heddle::session
