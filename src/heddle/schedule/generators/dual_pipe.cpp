#include "heddle/schedule/generators/dual_pipe.h"

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

}  // namespace heddle::schedule
