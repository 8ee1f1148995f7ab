// Schedule synthesis: an order for a placement, its stages' times and sizes, and a cap of bytes for each rank,
// faster than any named schedule.
//
// Method: the named schedules that fit are seeds, and so are greedy runs under searched rules (rule_search). The
// best seeds are annealed token by token with the timing as objective (anneal), with each fused pair a choice of
// its own. It works for a given number of tokens timed, not for a given time, so the same task gives the same order
// anywhere. The result is validated, and comes with the gap to the lower bounds (bounds). Constraints: one copy of
// each stage. A cap must hold one microbatch of each of a rank's stages; any cap from there on gives a schedule.
#pragma once

#include <cstdint>

#include "synthesis/bounds.h"
#include "synthesis/orders.h"
#include "synthesis/search_watch.h"

namespace heddle::schedule {

struct SynthesisOptions {
  bool pairs = true;             // may fuse forwards with backwards
  int64_t work = 1'500'000'000;  // in tokens timed, some 5 ns each
  uint64_t seed = 1;
  SearchWatch::Ask
      ask;  // asked some fifty times a second; when it ends the search, the best order so far comes out
};

struct NamedOrder {
  std::string name;
  double makespan = 0, peak_bytes = 0;  // of the rank that is most above, or least below, its cap
  bool fits = false;
};

struct Synthesis {
  Schedule schedule;
  Timing timing;
  Certificate certificate;
  Bounds bounds;
  double searched = 1;            // the part of the work that was done: less where `ask` ended the search
  std::string seed;               // name of the best order's seed
  std::vector<NamedOrder> named;  // the named schedules of this placement as they are, fastest first

  /// The part of the makespan above the bound; 0 where nothing can be faster.
  double gap() const { return timing.makespan > 0 ? 1 - bounds.makespan() / timing.makespan : 0; }
  /// The fastest named schedule within the cap, or null.
  const NamedOrder* best_named() const;
};

/// Throws ConfigError for tasks that can't be: see check(OrderTask).
Synthesis synthesise(const OrderTask& task, const SynthesisOptions& options = {});

}  // namespace heddle::schedule
