// The stretch of a step in which its actions repeat, each time for later microbatches: the steady state of a
// schedule. A walk whose state repeats there as well need not go through all of it: what follows is the same again.
//
// The state is everything that decides what the walk does next: places, free storage, and for each of them the last
// ops that used it. Of the counts of ops some move on by the same number each time, and the others, of what was
// used before the stretch, stay. Two states are one if all that is no count is equal, and each count that stays is
// below all that move. No comparison of two then ever comes out otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ir/program.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::ir {

struct RepeatedActions {
  size_t begin = 0;      // the first action of the stretch
  size_t period = 0;     // actions; 0: nothing repeats often enough
  size_t times = 0;      // periods in the stretch
  int microbatches = 0;  // by which each is later than the one before
};

/// Finds the stretch around the middle of the list.
RepeatedActions repeated_actions(const std::vector<Action>& actions);

/// The least microbatch of the actions from `begin` on that belongs to one.
int least_microbatch(const std::vector<Action>& actions, size_t begin);

/// A walk's state, written down.
struct WalkState {
  std::vector<int64_t> exact;
  std::vector<Marks> marks;
  struct Clock {
    size_t space = 0;
    uint64_t at = 0;
  };
  std::vector<Clock> clocks;        // of free storage
  std::vector<uint64_t> clock_now;  // [space], as the next two
  std::vector<size_t> fragments;
  std::vector<int64_t> reserved_bytes;
  Marks issued{};
  int64_t copied_out_bytes = 0, copied_in_bytes = 0;

  /// True if the walk goes on from `later` as it went on from here. `settled`: Storage::kSettled.
  bool repeats_in(const WalkState& later, uint64_t settled) const;
};

}  // namespace heddle::ir
