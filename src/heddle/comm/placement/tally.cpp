#include "heddle/comm/placement/tally.h"

namespace heddle::comm {

void tally(const Placed& placed, const Holders& holders, int64_t rank, double* figures) {
  const int64_t count = holders.count(), each = std::ssize(placed.expert_of_slot) / count,
                own = each - holders.replicas;
  const auto figure = [&](PlacedFigure what) -> double& { return figures[count + static_cast<int64_t>(what)]; };
  const auto crossings = [&](int64_t holder) {
    int64_t other_nodes = 0;
    for (int64_t r = holder * holders.slices; r < (holder + 1) * holders.slices; ++r)
      other_nodes += holders.node_of[r] != holders.node_of[rank] ? 1 : 0;
    return other_nodes;
  };
  for (int64_t h = 0; h < std::ssize(placed.runs_H); ++h) {
    for (const Run& run : placed.runs_H[h]) {
      const int64_t holder = run.slot / each;
      const auto rows = static_cast<double>(run.rows);
      figures[holder] += rows;
      if (run.slot % each < own) continue;
      figure(PlacedFigure::rows_moved) += rows;
      figure(PlacedFigure::crossings_saved) += rows * static_cast<double>(crossings(h / own) - crossings(holder));
    }
  }
  bool any = false;
  for (int64_t slot = 0; slot < std::ssize(placed.expert_of_slot); ++slot) {
    if (slot % each < own || placed.expert_of_slot[slot] < 0) continue;
    any = true;
    if (slot / each == rank / holders.slices) ++figure(PlacedFigure::replicas);
  }
  if (rank == 0) ++figure(any ? placed.with_replicas : placed.without);
}

}  // namespace heddle::comm
