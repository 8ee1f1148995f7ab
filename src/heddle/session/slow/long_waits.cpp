#include "heddle/session/slow/long_waits.h"

#include <algorithm>
#include <utility>

#include "heddle/base/statistics.h"
#include "heddle/session/ranks/slow_ranks.h"

namespace heddle::session {

void LongWaits::add(const train::StepResult& result) {
  if (steps_s_.empty()) first_ = result.step;
  double most_s = 0;
  for (const train::RankWork& w : result.work)
    most_s = std::max(most_s, w.forward_s + w.backward_s + w.update_s + w.experts_s);
  waits_s_.push_back(result.seconds - most_s);
  steps_s_.push_back(result.seconds);
}

void LongWaits::judge(double explained_s) {
  found_ = ended_ = false;
  const std::vector<double> waits_s = std::exchange(waits_s_, {}), steps_s = std::exchange(steps_s_, {});
  const double wait_s = quantile(waits_s, 0.5), step_s = quantile(steps_s, 0.5);
  bool is_long = false;
  double usual_s = wait_s;
  if (!quiet_s_.empty()) {
    usual_s = quantile({quiet_s_.begin(), quiet_s_.end()}, 0.5);
    const double excess_s = wait_s - usual_s - explained_s;
    is_long =
        excess_s > SlowRanks::kLeastExcess * step_s && excess_s > SlowRanks::kBeyondChance * chance_of(waits_s);
  }
  if (is_long) {
    if (slow_windows_++ == 0) since_ = first_;
    quiet_windows_ = 0;
  } else {
    slow_windows_ = 0;
    ++quiet_windows_;
    if (explained_s <= 0) quiet_s_.push_back(wait_s);
    if (quiet_s_.size() > kQuiet) quiet_s_.pop_front();
  }
  if (is_long && (now_ || slow_windows_ >= SlowRanks::kWindows)) {
    found_ = !now_;
    now_ = LongWait{now_ ? now_->since : since_, wait_s - usual_s, step_s};
  } else if (now_ && quiet_windows_ >= SlowRanks::kWindows) {
    ended_ = true;
    now_.reset();
  }
}

}  // namespace heddle::session
