// Records when the pages of a generation's ranks last changed, by the reader's clock: hosts' own clocks may be
// hours away, and are never compared with it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "heddle/comm/calls/rank_status.h"

namespace heddle::job {

class Movement {
 public:
  /// Begins at `now_s` of the steady clock: nothing has moved since.
  explicit Movement(double now_s = 0) : newest_s_(now_s) {}

  void see(const std::vector<comm::RankStatus>& pages, double now_s);
  /// Returns the time since any page last changed, or the first was seen.
  double idle_s(double now_s) const { return now_s - newest_s_; }
  /// Returns the pages with all their times by one clock, which shows `clock_ns` now.
  std::vector<comm::RankStatus> by_clock(std::vector<comm::RankStatus> pages, double now_s, int64_t clock_ns) const;

 private:
  struct Seen {
    int process = 0;
    int64_t moved_ns = 0, step = 0;
    double at_s = 0;
  };
  std::map<int, Seen> seen_;  // by rank
  double newest_s_;
};

}  // namespace heddle::job
