#include "heddle/schedule/generators/dual_pipe_v.h"

#include <algorithm>

#include "heddle/schedule/generators/dual_pipe_lane.h"
#include "heddle/schedule/generators/trim.h"

namespace heddle::schedule {

namespace {

Schedule folded(const char* name, int ranks, int microbatches, bool split_cool_down) {
  Schedule schedule = blank_schedule(name, v_placement, ranks, microbatches);
  schedule.microbatches = std::max(microbatches, 2 * ranks);
  for (int r = 0; r < ranks; ++r) {
    Lane lane(schedule, r);
    write_dual_pipe(lane, {r, 2 * ranks - 1 - r, r, ranks - 1 - r, schedule.microbatches, split_cool_down});
  }
  return trimmed(std::move(schedule), microbatches);
}

}  // namespace

Schedule dual_pipe_v(int ranks, int microbatches) { return folded("dual_pipe_v", ranks, microbatches, true); }

Schedule mindspeed_dual_pipe_v(int ranks, int microbatches) {
  return folded("mindspeed_dual_pipe_v", ranks, microbatches, false);
}

namespace {

// (P − 1)(fb + b − 3w), the small letters of one of two chunks; with `whole` backwards in the cool-down
// (P − 1)(fb + b − w).
Outline outline_of(bool whole) {
  Outline o;
  if (whole) {
    o.bubble = [](const PipelineSize& p, const StageTimes& t) {
      return (p.ranks - 1) * (t.forward + 2 * t.input_grad + t.weight_grad) / 2;
    };
  } else {
    o.bubble = [](const PipelineSize& p, const StageTimes& t) {
      return (p.ranks - 1) * std::max(t.forward, t.forward + 2 * t.input_grad - t.weight_grad) / 2;
    };
  }
  o.in_flight = [](const PipelineSize& p, int) {
    return p.ranks == 1 ? std::min(p.microbatches, 1.0) : std::min(p.microbatches, p.ranks + 0.5);
  };
  // (3P − r − 1)/2 of rank r.
  o.unpaired = [](const PipelineSize& p) { return std::min(p.microbatches, 1.25 * p.ranks); };
  // Below that it is a schedule of more microbatches, cut: its warm-up doesn't fill.
  o.misfit = [](const PipelineSize& p) -> std::string_view {
    return p.microbatches < 2 * p.ranks ? "fewer microbatches than twice the ranks" : "";
  };
  o.hides_exchange = true;
  return o;
}

}  // namespace

Outline dual_pipe_v_outline() { return outline_of(false); }
Outline mindspeed_dual_pipe_v_outline() {
  Outline o = outline_of(true);
  o.passed_over = "dual_pipe_v has a smaller bubble";
  return o;
}

}  // namespace heddle::schedule
