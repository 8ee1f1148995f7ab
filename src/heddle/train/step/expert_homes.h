// Where the experts of the layers live in which some have moved: what a step begins with (device::Batch::homes).
// The same on all ranks; it stands in checkpoints beside tensors that lie there by experts, wherever these lived.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace heddle::train {

struct ExpertHomes {
  int holders = 0;  // the ranks of ep that they are shared out to
  std::map<int, std::vector<int32_t>> layers;
  bool operator==(const ExpertHomes&) const = default;

  /// Of an expert of a layer.
  int64_t of(int layer, int64_t expert) const {
    const auto at = layers.find(layer);
    return at == layers.end() ? expert : at->second[static_cast<size_t>(expert)];
  }
};

/// What was looked at and done as a step ended.
struct MoveFigures {
  int64_t moved = 0, even = 0, not_worth = 0;       // layers that ended so (comm::MoveOutcome)
  int64_t experts = 0;                              // that moved,
  double bytes = 0;                                 // with so much state of all ranks that hold them
  double foretold_gain_s = 0, foretold_cost_s = 0;  // a step, and once: of all layers that moved any
};

}  // namespace heddle::train
