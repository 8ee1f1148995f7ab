// The predicted memory of a step on the rank that takes most.
#pragma once

#include <string_view>
#include <vector>

namespace heddle::observe {
struct PeakTensor;
}
namespace heddle::runtime {
struct MemoryPrediction;
}
namespace heddle::train {
class Trainer;
}

namespace heddle::session {

struct PredictedPeak {
  int rank = 0;                              // rank that takes most
  double reserved_bytes = 0;                 // size of its arena
  std::vector<observe::PeakTensor> tensors;  // alive at its peak; rank 0's to tell
};

/// `own`: of this rank. All ranks call it together.
PredictedPeak highest_peak(const runtime::MemoryPrediction& own, train::Trainer& trainer, std::string_view backend);

}  // namespace heddle::session
