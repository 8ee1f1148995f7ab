#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

std::vector<int> Placement::stages_of(int rank) const {
  std::vector<int> found;
  for (size_t s = 0; s < rank_of.size(); ++s) {
    if (rank_of[s] == rank) found.push_back(static_cast<int>(s));
  }
  return found;
}

Placement loop_placement(int ranks, int chunks) {
  Placement placement{ranks, ranks * chunks, 1, {}};
  for (int s = 0; s < placement.stages; ++s) placement.rank_of.push_back(s % ranks);
  return placement;
}

Placement v_placement(int ranks) {
  Placement placement{ranks, 2 * ranks, 1, {}};
  for (int s = 0; s < placement.stages; ++s) placement.rank_of.push_back(s < ranks ? s : 2 * ranks - 1 - s);
  return placement;
}

Placement two_way_placement(int ranks) {
  Placement placement{ranks, ranks, 2, {}};
  for (int s = 0; s < ranks; ++s) placement.rank_of.push_back(s);
  for (int s = 0; s < ranks; ++s) placement.rank_of.push_back(ranks - 1 - s);
  return placement;
}

Schedule forward_only(const Placement& placement) {
  Schedule schedule{"forward", placement, 1, {}};
  schedule.placement.routes = 1;
  schedule.placement.rank_of.resize(static_cast<size_t>(placement.stages));
  for (int r = 0; r < placement.ranks; ++r) {
    std::vector<Action>& order = schedule.order.emplace_back();
    for (const int stage : schedule.placement.stages_of(r)) order.push_back({{Kind::F, stage, 0}, {}});
  }
  return schedule;
}

std::vector<Compute> needs(const Placement& placement, const Compute& what) {
  const auto [kind, stage, m] = what;
  switch (kind) {
    case Kind::F:
      if (placement.is_first(stage)) return {};
      return {{Kind::F, stage - 1, m}};
    case Kind::I:
    case Kind::B:
      if (placement.is_last(stage)) return {{Kind::F, stage, m}};
      return {{Kind::F, stage, m}, {Kind::I, stage + 1, m}};
    case Kind::W: return {{Kind::I, stage, m}};
  }
  return {};
}

}  // namespace heddle::schedule
