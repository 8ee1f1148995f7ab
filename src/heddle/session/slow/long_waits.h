// Finds waits that no rank's work explains: a step takes longer, and the rank that works most does not. Then the
// transfers between ranks are slow, and probes of pairs find which (pair_probe.h).
//
// The excess of a step is its length beyond the work of its busiest rank. Medians of windows of 20 steps are
// compared with the middle of the quiet windows before. The excess must have grown by a tenth of a step, beyond 3.5
// times what chance moves such a median by. It must also exceed what a slow rank works longer, all in three windows
// one behind the other. As many quiet ones end it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "heddle/train/step/result.h"

namespace heddle::session {

struct LongWait {
  int64_t since = 0;    // the first step of its first window
  double excess_s = 0;  // excess of a step, in the last window
  double step_s = 0;    // the window's median
};

class LongWaits {
 public:
  void add(const train::StepResult& result);
  /// Judges a window. `explained_s`: the extra work in a step of a rank that is slow, for which others wait.
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
