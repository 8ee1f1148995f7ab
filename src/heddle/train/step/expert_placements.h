// The placement of experts in layers where some have moved: a step begins with it (the inputs `homes.LAYER`). It is
// the same on all ranks. Checkpoints have it beside tensors that lie there by experts, whatever their placement
// was.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace heddle::train {

struct ExpertPlacements {
  int holders = 0;  // the ranks of ep that they are shared out to
  std::map<int, std::vector<int32_t>> layers;
  bool operator==(const ExpertPlacements&) const = default;

  /// The home of an expert of a layer.
  int64_t of(int layer, int64_t expert) const {
    const auto at = layers.find(layer);
    return at == layers.end() ? expert : at->second[static_cast<size_t>(expert)];
  }
};

}  // namespace heddle::train
