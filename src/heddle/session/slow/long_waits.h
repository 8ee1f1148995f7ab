// Waits that no rank's work explains: a step takes longer, and the rank that works most does not. Then what goes
// between ranks is slow, which probes of pairs look for (pair_probe.h).
//
// What a step lasts beyond the work of its busiest rank is compared, by medians of windows of 20 steps, with the
// middle of the quiet windows before: it must have grown by a tenth of a step, beyond 3.5 times what chance moves
// such a median by, in three windows one behind the other, beyond what a slow rank works longer. As many quiet ones
// end it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "heddle/train/step/result.h"

namespace heddle::session {

struct LongWait {
  int64_t since = 0;    // the first step of its first window
  double excess_s = 0;  // of a step, in the last window
  double step_s = 0;    // the window's median
};

class LongWaits {
 public:
  void add(const train::StepResult& result);
  /// After a window. `explained_s`: what a rank that is slow worked longer in a step of it, which others wait for.
  void judge(double explained_s);

  const std::optional<LongWait>& now() const { return now_; }
  bool found() const { return found_; }  // with the last window, likewise
  bool ended() const { return ended_; }

 private:
  static constexpr size_t kQuiet = 16;
  int64_t first_ = 0;
  std::vector<double> waits_s_, steps_s_;
  std::deque<double> quiet_s_;  // medians of quiet windows
  int slow_windows_ = 0, quiet_windows_ = 0;
  int64_t since_ = 0;
  std::optional<LongWait> now_;
  bool found_ = false, ended_ = false;
};

}  // namespace heddle::session
