#include "heddle/schedule/generators/dual_pipe_lane.h"

namespace heddle::schedule {

void write_dual_pipe(Lane& lane, const DualPipeRank& rank) {
  const auto [near, far, before, left, microbatches, split] = rank;
  for (int i = 0; i < 2 * left; ++i) lane.F(near);
  for (int i = 0; i <= before; ++i) {
    lane.F(near);
    lane.F(far);
  }
  for (int i = 0; i < left; ++i) {
    lane.I(far);
    lane.W();
    lane.F(far);
  }
  const int pairs = microbatches - 2 * left - before - 1;
  for (int i = 0; i < pairs; ++i) {
    if (i == 0 && left == 0) {  // at the turn the backward would wait for a forward that has just begun elsewhere
      lane.F(near);
      lane.B(far);
    } else {
      lane.pair(near, far);
    }
    lane.pair(far, near);
  }
  for (int i = 0; i < left; ++i) {
    lane.B(far);
    lane.pair(far, near);
  }
  for (int i = 0; i < 2 * (before + 1); ++i) {
    const int stage = i % 2 == 0 ? far : near;
    if (split && i > before) {
      lane.I(stage);
    } else {
      lane.B(stage);
    }
  }
  for (int i = 0; i < left; ++i) {
    if (split) {
      lane.W();
      lane.I(near);
    } else {
      lane.B(near);
    }
  }
  for (int i = 0; split && i <= before; ++i) lane.W();
}

}  // namespace heddle::schedule
