// What a choice of copies came to for one microbatch, added to the layer's figures (ir/placed_figures.h).
#pragma once

#include "heddle/comm/placement/placement.h"
#include "heddle/ir/placed_figures.h"

namespace heddle::comm {

struct Placed {
  std::span<const int32_t> experts, slots;  // of each choice of this rank's tokens
  std::span<const int32_t> expert_of_slot;
  PlacedFigure with_copies = PlacedFigure::by_counts, without = PlacedFigure::even;  // how the choice ended
  bool first = false;                                                                // the figures hold nothing yet
};

/// `figures`: rows of each holder, then kPlacedFigures.
void tally(const Placed& placed, const Holders& holders, int64_t rank, double* figures);

}  // namespace heddle::comm
