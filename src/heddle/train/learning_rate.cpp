#include "heddle/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace heddle::train {

double LearningRate::at(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (shape == Shape::constant) return peak;
  const int64_t begin = shape == Shape::cosine ? warmup_steps : std::max(warmup_steps, steps - decay_steps);
  if (step < begin) return peak;
  const double done = std::min(
      1.0, static_cast<double>(step + 1 - begin) / static_cast<double>(std::max<int64_t>(1, steps - begin)));
  const double left = shape == Shape::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return least + (peak - least) * left;
}

}  // namespace heddle::train
