// Orders made by running the ranks: whoever can begin something first begins it, within its cap of bytes.
//
// A cap alone would let the forwards of early chunks take the room that later chunks need to finish anything. So a
// forward begins only if each later chunk of the rank keeps room for one microbatch, beside or in what it holds.
// Then the oldest unfinished microbatch can always go on, and any run comes to its end. Weight gradients run when
// nothing else can, and when room is needed.
#pragma once

#include "synthesis/orders.h"

namespace heddle::schedule {

/// Rules by which a rank chooses.
struct GreedyRules {
  std::vector<int> holds;      // of each chunk: at most so many microbatches between F and W, at least 1
  std::vector<int> priority;   // the chunks, preferred first
  bool backward_first = true;  // of what could begin at the same time
  double patience = 0;         // rather idle so long than begin a W
  bool operator==(const GreedyRules&) const = default;
};

/// `rules` of each rank. The words are legal; every rank's cap must hold one microbatch of each of its chunks.
Words capped_greedy(const Orders& orders, const std::vector<GreedyRules>& rules);

}  // namespace heddle::schedule
