// The phases of a rank in DualPipe and DualPipeV, which differ only in how far a rank is from the turning point.
#pragma once

#include "heddle/schedule/lane.h"

namespace heddle::schedule {

struct DualPipeRank {
  int near = 0, far = 0;     // the stage whose forwards come first, and the other one
  int before = 0, left = 0;  // ranks on the way between here and the beginning, and between here and the turn
  int microbatches = 0;      // of each of the two stages
  bool split_cool_down = true;
};

/// Appends the rank's whole list. `microbatches` must be at least 2 (before + left + 1).
void write_dual_pipe(Lane& lane, const DualPipeRank& rank);

}  // namespace heddle::schedule
