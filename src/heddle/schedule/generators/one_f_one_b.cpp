#include "heddle/schedule/generators/one_f_one_b.h"

#include <algorithm>

#include "heddle/schedule/links.h"

namespace heddle::schedule {

Schedule one_f_one_b(int ranks, int microbatches) {
  Schedule s{"1f1b", loop_placement(ranks), microbatches, {}};
  check_size(s.placement, microbatches);
  for (int r = 0; r < ranks; ++r) {
    std::vector<Action>& order = s.order.emplace_back();
    const int warm_up = std::min(ranks - 1 - r, microbatches);
    for (int m = 0; m < microbatches + warm_up; ++m) {
      if (m < microbatches) order.push_back({{Kind::F, r, m}, {}});
      if (m >= warm_up) order.push_back({{Kind::B, r, m - warm_up}, {}});
    }
  }
  return s;
}

Outline one_f_one_b_outline() {
  Outline o;
  o.bubble = [](const PipelineSize& p, const StageTimes& t) { return (p.ranks - 1) * t.sum() / p.chunks; };
  o.in_flight = [](const PipelineSize& p, int rank) { return std::min<double>(p.microbatches, p.ranks - rank); };
  o.alone = true;
  return o;
}

}  // namespace heddle::schedule
