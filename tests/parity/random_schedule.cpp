#include "tests/parity/random_schedule.h"

#include <algorithm>
#include <set>

namespace heddle::parity {

using schedule::Action;
using schedule::Compute;
using schedule::Kind;

schedule::Schedule random_schedule(const schedule::Placement& placement, int microbatches,
                                   const std::function<int(int)>& below) {
  schedule::Schedule s{"random", placement, microbatches, {}};
  s.order.resize(static_cast<size_t>(placement.ranks));
  std::set<Compute> done;
  const int stages = static_cast<int>(placement.rank_of.size());
  const auto first = [&](int stage) { return placement.microbatches_of(stage, microbatches).first; };
  std::vector<std::array<int, 3>> next;  // microbatch of F, I, W by stage
  for (int stage = 0; stage < stages; ++stage) next.push_back({first(stage), first(stage), first(stage)});
  const auto ready = [&](int rank) {
    std::vector<Compute> found;
    for (const int stage : placement.stages_of(rank)) {
      const int last = placement.microbatches_of(stage, microbatches).second;
      for (const Kind kind : {Kind::F, Kind::I, Kind::W}) {
        const int m = next[static_cast<size_t>(stage)][static_cast<size_t>(kind)];
        if (m == last) continue;
        const Compute what{kind, stage, m};
        const std::vector<Compute> needed = needs(placement, what);
        if (std::all_of(needed.begin(), needed.end(), [&](const Compute& c) { return done.contains(c); })) {
          found.push_back(what);
        }
      }
    }
    return found;
  };
  const auto run = [&](const Compute& what) {
    done.insert(what);
    ++next[static_cast<size_t>(what.stage)][static_cast<size_t>(what.kind)];
  };
  for (;;) {
    std::vector<int> ranks;
    for (int r = 0; r < placement.ranks; ++r) {
      if (!ready(r).empty()) ranks.push_back(r);
    }
    if (ranks.empty()) return s;
    const int rank = ranks[static_cast<size_t>(below(static_cast<int>(ranks.size())))];
    const std::vector<Compute> can = ready(rank);
    // An I whose weight gradients of earlier microbatches are done may take its own along.
    const auto whole = [&](Compute c) {
      if (c.kind == Kind::I && next[static_cast<size_t>(c.stage)][2] == c.microbatch && below(3) > 0)
        c.kind = Kind::B;
      return c;
    };
    Action action{whole(can[static_cast<size_t>(below(static_cast<int>(can.size())))]), {}};
    if (action.first.kind == Kind::F && below(3) > 0) {
      for (const Compute& other : can) {
        if (other.kind == Kind::I) action.with = whole(other);
      }
    }
    for (const Compute& c : {action.first, action.with.value_or(action.first)}) {
      if (done.contains({c.kind == Kind::B ? Kind::I : c.kind, c.stage, c.microbatch})) continue;
      run({c.kind == Kind::B ? Kind::I : c.kind, c.stage, c.microbatch});
      if (c.kind == Kind::B) run({Kind::W, c.stage, c.microbatch});
    }
    s.order[static_cast<size_t>(rank)].push_back(action);
  }
}

}  // namespace heddle::parity
