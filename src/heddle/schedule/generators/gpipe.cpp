#include "heddle/schedule/generators/gpipe.h"

#include "heddle/schedule/links.h"

namespace heddle::schedule {

Schedule gpipe(int ranks, int microbatches) {
  Schedule s{"gpipe", loop_placement(ranks), microbatches, {}};
  check_size(s.placement, microbatches);
  for (int r = 0; r < ranks; ++r) {
    std::vector<Action>& order = s.order.emplace_back();
    for (int m = 0; m < microbatches; ++m) order.push_back({{Kind::F, r, m}, {}});
    for (int m = 0; m < microbatches; ++m) order.push_back({{Kind::B, r, m}, {}});
  }
  return s;
}

Outline gpipe_outline() {
  Outline o;
  o.bubble = [](const PipelineSize& p, const StageTimes& t) { return (p.ranks - 1) * t.sum(); };
  o.in_flight = [](const PipelineSize& p, int) { return p.microbatches; };
  o.passed_over = "1f1b has the same bubble and holds less";
  return o;
}

}  // namespace heddle::schedule
