#include "heddle/session/agent/frequency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "heddle/base/statistics.h"
#include "heddle/observe/units.h"

namespace heddle::session {

namespace {

constexpr size_t kMostKept = 1000;  // entries of each kind; the first ones say enough

}  // namespace

double daly_interval_s(double cost_s, double between_failures_s) {
  const double d = cost_s, m = between_failures_s;
  if (d >= 2 * m) return m;  // copies are all it does
  const double part = std::sqrt(d / (2 * m));
  return std::sqrt(2 * d * m) * (1 + part / 3 + part * part / 9) - d;
}

void SnapshotFrequency::step(double seconds, bool with_copy) {
  if (steps_++ == 0) return;
  std::vector<double>& all = with_copy ? with_s_ : without_s_;
  if (all.size() < kMostKept) all.push_back(seconds);
}

double SnapshotFrequency::step_s() const { return median(without_s_.empty() ? with_s_ : without_s_); }

double SnapshotFrequency::copy_s() const {
  if (blocked_s_.empty()) return 0;
  const bool pairs = !with_s_.empty() && !without_s_.empty();
  return std::max(median(blocked_s_), pairs ? median(with_s_) - median(without_s_) : 0);
}

double SnapshotFrequency::save_s() const { return median(saved_s_); }

int64_t SnapshotFrequency::steps_between(double cost_s) const {
  if (cost_s <= 0 || step_s() <= 0) return 0;
  return std::max<int64_t>(1, std::llround(daly_interval_s(cost_s, between_failures_s_) / step_s()));
}

std::string frequency_note(int64_t copy_every, int64_t save_every, double copy_s, double save_s, double step_s,
                           double between_failures_s) {
  std::string text;
  if (copy_every > 0)
    text += fmt::format("snapshots in memory every {} steps (one costs {})", copy_every,
                        observe::duration_text(copy_s));
  if (save_every > 0) {
    text += fmt::format("{}checkpoints every {} steps (one costs {})", text.empty() ? "" : ", ", save_every,
                        observe::duration_text(save_s));
  }
  return fmt::format("{}: a step takes {}, and something fails every {} (train.mtbf_hours)", text,
                     observe::duration_text(step_s), observe::duration_text(between_failures_s));
}

}  // namespace heddle::session
