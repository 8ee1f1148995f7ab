#include "heddle/config/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace heddle::config {

double LearningRate::at(const RunLength& length, const RunProgress& done) const {
  const double now = length.end_of_next(done);
  const double whole = length.by_clock() ? length.seconds : static_cast<double>(length.steps);
  if (now <= warmup) return peak * now / warmup;
  if (shape == Shape::constant) return peak;
  if (shape == Shape::inverse_sqrt) {
    // Without a warm-up the first step, or by the clock what is taken for one, is what it falls from.
    const double first = length.by_clock() ? whole / RunLength::kUnknownSteps : 1;
    const double from = warmup > 0 ? warmup : std::min(first, now);
    return std::max(std::min(least, peak), peak * std::sqrt(from / now));
  }
  const double begin = shape == Shape::wsd ? std::max(warmup, whole - decay) : warmup;
  if (now <= begin) return peak;
  const double fallen = whole > begin ? std::min(1.0, (now - begin) / (whole - begin)) : 1.0;
  const double left = shape == Shape::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * fallen)) : 1 - fallen;
  return least + (peak - least) * left;
}

double LearningRate::left(const RunLength& length, const RunProgress& done) const {
  return length.end_of_next(done) <= warmup || peak <= 0 ? 1 : at(length, done) / peak;
}

}  // namespace heddle::config
