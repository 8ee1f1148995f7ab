// The learning rate of a step: linear warm-up, then constant, a cosine, or warm-up–stable–decay (Hu et al.,
// arXiv 2404.06395).
#pragma once

#include <cstdint>
#include <string>

namespace heddle::train {

struct LearningRate {
  enum class Shape : uint8_t { constant, cosine, wsd } shape = Shape::cosine;
  double peak = 1e-3;
  double least = 1e-4;  // at the end of cosine and wsd
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // of wsd: the last ones
  int64_t steps = 1;        // of the whole run

  /// Of step `step`, counted from 0.
  double at(int64_t step) const;
};

}  // namespace heddle::train
