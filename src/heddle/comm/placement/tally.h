// The result of a choice of replicas for one microbatch, added to the layer's figures (ir/placed_figures.h).
#pragma once

#include <vector>

#include "heddle/comm/placement/placement.h"
#include "heddle/ir/placed_figures.h"

namespace heddle::comm {

/// Rows of an expert, the next to come, that go to a slot.
struct Run {
  int64_t slot, rows;
};
using Runs = std::vector<std::vector<Run>>;  // by expert or by home, in their order

struct Placed {
  const Runs& runs_H;  // of this rank's rows, by home
  std::span<const int32_t> expert_of_slot;
  PlacedFigure with_replicas = PlacedFigure::by_counts, without = PlacedFigure::even;  // how the choice ended
};

/// `figures`: rows of each holder, then kPlacedFigures.
void tally(const Placed& placed, const Holders& holders, int64_t rank, double* figures);

}  // namespace heddle::comm
