// Local search over all ranks' orders by simulated annealing, with the timing as objective.
//
// A change moves one token of one rank a few places, or, where pairs are wanted, fuses a forward with a backward
// near it or takes a pair apart. Illegal words are dropped before they are timed; a timing stops as soon as it
// can't be accepted any more. The temperature is low, a few hundredths of a token's mean length: seeds are good
// already, and hot searches lose them.
#pragma once

#include <cstdint>

#include "synthesis/orders.h"
#include "synthesis/search_watch.h"

namespace heddle::schedule {

struct AnnealOptions {
  int64_t steps = 100'000;
  uint64_t seed = 1;
  bool pairs = false;
  SearchWatch* watch = nullptr;  // notified of each step; may end the search
};

/// The best words met, never slower than `words`, which must be legal and able to go on.
Words anneal(Orders& orders, Words words, const AnnealOptions& options);

/// Each lone B as its I and W, and with `pairs` false each pair as its parts. What was legal stays so.
Words taken_apart(Words words, bool pairs);

/// Fuses neighbouring forwards and backwards from the front, wherever that makes nothing slower.
Words fused(Orders& orders, Words words);

}  // namespace heddle::schedule
