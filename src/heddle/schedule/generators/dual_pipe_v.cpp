#include "heddle/schedule/generators/dual_pipe_v.h"

#include "heddle/schedule/generators/dual_pipe_lane.h"
#include "heddle/schedule/synthesis/trim.h"

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

}  // namespace heddle::schedule
