// Limits how long a job is started again. An end after which the job had come further than ever before is bad luck
// and costs nothing. Ends in a row that come no further are a crash loop: each waits twice as long as the one
// before, and after so many the job stops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace heddle::job {

class Persistence {
 public:
  Persistence(int attempts, double first_pause_s, double longest_pause_s)
      : attempts_(attempts), first_s_(first_pause_s), longest_s_(longest_pause_s) {}

  /// Returns the seconds to wait before the next start after a fault at this step; none: stop.
  std::optional<double> after_fault(int64_t step) {
    if (step > furthest_) {
      furthest_ = step;
      in_vain_ = 0;
      return 0.0;
    }
    if (++in_vain_ >= attempts_) return std::nullopt;
    double pause_s = first_s_;
    for (int i = 1; i < in_vain_ && pause_s < longest_s_; ++i) pause_s *= 2;
    return std::min(pause_s, longest_s_);
  }
  int in_vain() const { return in_vain_; }
  int64_t furthest() const { return furthest_; }

 private:
  int attempts_;
  double first_s_, longest_s_;
  int64_t furthest_ = -1;
  int in_vain_ = 0;
};

}  // namespace heddle::job
