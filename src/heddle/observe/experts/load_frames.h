// Of which steps of a run the figures of its layers are kept: at most 32, spread over the run as evenly as they can
// be, and of the last one that has any. So a long run keeps no more of them than a short one.
#pragma once

#include <cstddef>
#include <vector>

#include "heddle/observe/step_metrics.h"

namespace heddle::observe {

/// Leaves a step without the figures of its layers.
void drop_layers(StepMetrics& step);

class LoadFrames {
 public:
  static constexpr size_t kMost = 32;

  LoadFrames() = default;
  /// Those of steps that have been kept before.
  explicit LoadFrames(std::vector<StepMetrics>& steps);
  /// A step has come behind the others.
  void added(std::vector<StepMetrics>& steps);
  /// Only the first `size` of the steps are left.
  void cut(size_t size);

 private:
  std::vector<size_t> kept_;
  int64_t spacing_ = 1;  // steps from one to the next; the last may be nearer
};

}  // namespace heddle::observe
