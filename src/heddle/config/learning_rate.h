// The learning rate of a step over the steps of a run, or over its time. After a linear warm-up it is constant, a
// cosine, a line, warm-up–stable–decay (Hu et al., arXiv 2404.06395), or peak·√(warm-up ÷ step) (Vaswani et al.,
// arXiv 1706.03762).
#pragma once

#include "heddle/base/words.h"
#include "heddle/config/run_length.h"

namespace heddle::config {

/// The shape of the rate after the warm-up.
enum class RateShape : uint8_t { constant, cosine, wsd, linear, inverse_sqrt };
constexpr auto words_of(RateShape) {
  return std::to_array<Word<RateShape>>({{RateShape::cosine, "cosine"},
                                         {RateShape::wsd, "wsd"},
                                         {RateShape::constant, "constant"},
                                         {RateShape::linear, "linear"},
                                         {RateShape::inverse_sqrt, "inverse_sqrt"}});
}

struct LearningRate {
  using Shape = RateShape;
  Shape shape = Shape::cosine;
  double peak = 1e-3;
  double least = 1e-4;  // at the end of cosine, linear and wsd; inverse_sqrt falls no lower
  // Durations in the measure of the run's length: steps, or seconds.
  double warmup = 0;
  double decay = 0;  // of wsd: the last ones

  /// The rate of the step that follows `done`: as it will be when that step ends.
  double at(const RunLength& length, const RunProgress& done) const;
  /// The part of the peak it has come down to by then: 1 until it falls.
  double left(const RunLength& length, const RunProgress& done) const;
};

}  // namespace heddle::config
