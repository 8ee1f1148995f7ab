// The times at which copies from the host must begin so that they have ended where they are needed. All passes that
// bring values back share them. A copy stands as late as it may. Counted from the end of a block, each begins
// `kMargin` times its own duration before it is needed, and before the next one. Those that would have to begin
// before their block does are `ahead`: a block of their own, which the schedule's lowering puts one action earlier.
#pragma once

#include <vector>

#include "heddle/passes/weave.h"

namespace heddle::passes {

constexpr double kMargin = 1.5;  // durations of copies are taken so much longer than they are said to be

/// The times at which the compute stream reaches each op of some of a chunk's phases, counted from the first of
/// them.
struct Timeline {
  std::vector<size_t> ops;
  std::vector<double> start_us;
  double end_us = 0;

  Timeline(const ir::Listing& listing, int chunk, const std::vector<ir::Phase>& phases,
           const Durations& duration_us);
  size_t place_of(size_t op) const;
  double start_of(size_t op) const { return start_us[place_of(op)]; }
};

/// A copy from the host.
struct Fetch {
  size_t use = 0;         // the op that needs it first, as are the others an index into the listing's ops
  size_t of = 0;          // the caller's own number for it
  double copy_us = 0;     // with the margin
  bool stands = false;    // it is in the list already, at `use`
  bool insists = false;   // it is made even where it comes too late
  bool too_late = false;  // it could not be there in time
  bool ahead = false;
  size_t before = 0;  // the op before which it stands, unless it is too late and doesn't insist
};

/// Places them, the last needed first; that is the order in which they are left. `room_us`: how long before its
/// block a copy may begin. `most`: how many others may be needed between a copy's beginning and its own use, lest
/// more is there early than is worth the time. A copy that would need more is too late.
void place_fetches(std::vector<Fetch>& fetches, const Timeline& block, double room_us,
                   size_t most = static_cast<size_t>(-1));

}  // namespace heddle::passes
