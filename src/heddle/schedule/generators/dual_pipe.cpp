#include "heddle/schedule/generators/dual_pipe.h"

#include <algorithm>

#include "heddle/schedule/generators/dual_pipe_lane.h"

namespace heddle::schedule {

Schedule dual_pipe(int ranks, int microbatches) {
  Schedule schedule = blank_schedule("dual_pipe", two_way_placement, ranks, microbatches);
  if (ranks % 2 != 0) config_error("schedule dual_pipe: {} ranks, accepted an even number", ranks);
  if (microbatches % 2 != 0 || microbatches < 2 * ranks) {
    config_error("schedule dual_pipe: {} microbatches on {} ranks, accepted an even number of at least {}",
                 microbatches, ranks, 2 * ranks);
  }
  for (int r = 0; r < ranks; ++r) {
    const int before = std::min(r, ranks - 1 - r);
    const int down = r, up = 2 * ranks - 1 - r;  // this rank's stage, and the copy of the mirrored rank's
    Lane lane(schedule, r);
    write_dual_pipe(lane, {before == r ? down : up, before == r ? up : down, before, ranks / 2 - 1 - before,
                           microbatches / 2, true});
  }
  return schedule;
}

Outline dual_pipe_outline() {
  Outline o;
  o.bubble = [](const PipelineSize& p, const StageTimes& t) {
    return (p.ranks / 2.0 - 1) * std::max(t.forward, t.forward + 2 * t.input_grad - t.weight_grad);
  };
  o.in_flight = [](const PipelineSize& p, int) {
    return p.ranks == 1 ? std::min(p.microbatches, 1.0) : std::min(p.microbatches, p.ranks + 1.0);
  };
  // As many as DualPipeV's, its halves having P/2 ranks and m/2 microbatches.
  o.unpaired = [](const PipelineSize& p) { return std::min(p.microbatches, 1.25 * p.ranks); };
  o.misfit = [](const PipelineSize& p) -> std::string_view {
    if (p.ranks % 2 != 0 || static_cast<int64_t>(p.microbatches) % 2 != 0)
      return "dual_pipe halves ranks and microbatches";
    return p.microbatches < 2 * p.ranks ? "fewer microbatches than twice the ranks" : "";
  };
  o.hides_exchange = true;
  return o;
}

}  // namespace heddle::schedule
