#include "heddle/session/ranks/patience.h"

#include <algorithm>

namespace heddle::session {

void Patience::stepped(double seconds, int64_t batch) {
  const double each_s = seconds / static_cast<double>(std::max<int64_t>(1, batch));
  // The first step also makes what later ones find: pages of memory, choices of kernels.
  if (steps_++ == 0) {
    first_s_ = each_s;
  } else {
    longest_s_ = std::max(longest_s_, each_s);
  }
}

double Patience::step_limit_s(int64_t batch) const {
  if (steps_ == 0) return kAnything_s;
  const double each_s = longest_s_ > 0 ? longest_s_ : first_s_;
  return std::max(kLeastStep_s, kTimes * each_s * static_cast<double>(batch));
}

double Patience::look_limit_s(int64_t sequences, int64_t tokens) const {
  if (steps_ == 0) return kAnything_s;
  // A token of text takes less than a step of one sequence.
  const double each_s = std::max(longest_s_, first_s_);
  return kLeastStep_s + kReport_s + kTimes * each_s * static_cast<double>(sequences + tokens);
}

double Patience::save_limit_s() const {
  return std::max(
      {kLeastSave_s, 2 * static_cast<double>(node_bytes_) / kSlowestDisk_B_s, kTimes * longest_save_s_});
}

}  // namespace heddle::session
