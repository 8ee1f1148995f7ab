#include "heddle/schedule/generators/zero_bubble_handmade.h"

#include <algorithm>

#include "heddle/schedule/links.h"

namespace heddle::schedule {

namespace {

// `depth` times the warm-up of 1F1B, and W as many I later as keep all ranks' peaks alike.
Schedule handmade(const char* name, int depth, int ranks, int microbatches) {
  Schedule s{name, loop_placement(ranks), microbatches, {}};
  check_size(s.placement, microbatches);
  for (int r = 0; r < ranks; ++r) {
    std::vector<Action>& order = s.order.emplace_back();
    const int warm_up = std::min(depth * (ranks - 1 - r), microbatches), lag = depth * r;
    for (int m = 0; m < microbatches + warm_up; ++m) {
      if (m < microbatches) order.push_back({{Kind::F, r, m}, {}});
      if (m < warm_up) continue;
      const int back = m - warm_up;
      order.push_back({{Kind::I, r, back}, {}});
      if (back >= lag) order.push_back({{Kind::W, r, back - lag}, {}});
    }
    for (int m = std::max(0, microbatches - lag); m < microbatches; ++m) order.push_back({{Kind::W, r, m}, {}});
  }
  return s;
}

}  // namespace

Schedule zb_h1(int ranks, int microbatches) { return handmade("zb_h1", 1, ranks, microbatches); }
Schedule zb_h2(int ranks, int microbatches) { return handmade("zb_h2", 2, ranks, microbatches); }

// Nearly all activations stay until W, so that the later ranks hold as much as the first.
Outline zb_h1_outline() {
  Outline o;
  o.bubble = [](const PipelineSize& p, const StageTimes& t) {
    return (p.ranks - 1) * std::max(t.forward, t.forward + t.input_grad - t.weight_grad);
  };
  o.in_flight = [](const PipelineSize& p, int) { return std::min<double>(p.microbatches, p.ranks); };
  return o;
}

Outline zb_h2_outline() {
  Outline o;
  o.bubble = [](const PipelineSize& p, const StageTimes& t) {
    return (p.ranks - 1) * std::max(t.forward, t.forward + t.input_grad - 2 * t.weight_grad);
  };
  o.in_flight = [](const PipelineSize& p, int) { return std::min(p.microbatches, 2.0 * p.ranks - 1); };
  return o;
}

}  // namespace heddle::schedule
