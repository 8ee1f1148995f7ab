// Chooses the steps of a run whose figures of layers are kept. There are at most 32, spread over the run as evenly
// as they can be, and the last one that has any. So a long run keeps no more of them than a short one.
#pragma once

#include <cstddef>
#include <vector>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

/// True if the log has the `numbers` figures of layers of a step. Where they are very many, so few steps have them
/// that they don't make up most of the log; else every step has.
bool have_layers(int64_t step, size_t numbers);

/// Leaves a step without the figures of its layers.
void drop_layers(StepMetrics& step);

class LoadFrames {
 public:
  static constexpr size_t kMost = 32;

  LoadFrames() = default;
  /// Takes over steps that have been kept before.
  explicit LoadFrames(std::vector<StepMetrics>& steps);
  /// Takes a step that has come behind the others.
  void added(std::vector<StepMetrics>& steps);
  /// Cuts the steps to the first `size`.
  void cut(size_t size);

 private:
  std::vector<size_t> kept_;
  int64_t spacing_ = 1;  // steps from one to the next; the last may be nearer
};

}  // namespace heddle::observe
