// Searches for rules by which a greedy run (schedule/capped_greedy) gives a fast order.
//
// A few numbers a rank decide over the whole order: how many microbatches each chunk may hold, what goes first, how
// long to wait rather than begin a W. First comes a grid of rules in which the early chunks' share falls from rank
// to rank (a rank near the end of the way needs fewer). Then comes annealing over single ranks' rules from the best
// of them. The rules do not depend on the number of microbatches: they are sought with few and used with all.
#pragma once

#include <cstdint>

#include "synthesis/capped_greedy.h"
#include "synthesis/search_watch.h"

namespace heddle::schedule {

/// The orders of the best rules, fastest first, at most `most`, none twice, at least one. `work` is in tokens
/// timed; `watch` may end the search.
std::vector<Words> search_rules(const OrderTask& task, int64_t work, uint64_t seed, int most, SearchWatch& watch);

}  // namespace heddle::schedule
