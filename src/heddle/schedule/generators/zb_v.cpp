#include "heddle/schedule/generators/zb_v.h"

#include <algorithm>

#include "heddle/schedule/generators/trim.h"
#include "heddle/schedule/lane.h"

namespace heddle::schedule {

namespace {

void write(Lane& lane, int r, int ranks, int microbatches) {
  const int down = r, up = 2 * ranks - 1 - r;  // the chunks on the two legs of the V
  const auto forward_back_up = [&] {
    lane.F(up);
    lane.I(up);
    lane.W(up);
  };
  for (int i = 0; i < 2 * (ranks - r) - 1; ++i) lane.F(down);
  for (int i = 0; i < r; ++i) {
    lane.F(up);
    lane.F(down);
  }
  for (int i = 0; i < ranks - r; ++i) forward_back_up();
  while (lane.done(Kind::F, up) < microbatches) {
    if (lane.done(Kind::F, down) < microbatches) lane.F(down);
    lane.I(down);
    lane.W(down);
    forward_back_up();
  }
  for (int i = 0; i < r; ++i) {
    lane.I(down);
    lane.I(up);
  }
  for (int i = 0; i < ranks - r; ++i) {
    lane.I(down);
    // The first W left open, not this one: a stage's weight gradients keep their order.
    lane.W(down);
  }
  while (lane.done(Kind::W, up) < microbatches) lane.W(up);
  while (lane.done(Kind::W, down) < microbatches) lane.W(down);
}

}  // namespace

Schedule zb_v(int ranks, int microbatches) {
  Schedule schedule = blank_schedule("zb_v", v_placement, ranks, microbatches);
  schedule.microbatches = std::max(microbatches, 2 * ranks - 1);
  for (int r = 0; r < ranks; ++r) {
    Lane lane(schedule, r);
    write(lane, r, ranks, schedule.microbatches);
  }
  return trimmed(std::move(schedule), microbatches);
}

Outline zb_v_outline() {
  Outline o;
  o.bubble = [](const PipelineSize& p, const StageTimes& t) {
    return (p.ranks - 1) * std::max({t.forward / 2, t.input_grad / 2, t.input_grad - t.weight_grad});
  };
  o.in_flight = [](const PipelineSize& p, int) { return std::min<double>(p.microbatches, p.ranks); };
  // Below that it is a schedule of more microbatches, cut: its warm-up doesn't fill.
  o.misfit = [](const PipelineSize& p) -> std::string_view {
    return p.microbatches < 2 * p.ranks - 1 ? "fewer microbatches than twice the ranks" : "";
  };
  return o;
}

}  // namespace heddle::schedule
