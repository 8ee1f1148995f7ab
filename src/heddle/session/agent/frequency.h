// How often a run copies its state, from what that costs and how often something fails: Daly's interval ("A higher
// order estimate of the optimum checkpoint interval for restart dumps", FGCS 22, 2006), which for copies that cost
// little is Young's, √(2 × cost × mean time between failures).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::session {

/// Seconds of work between two copies that each take `cost_s` of it.
double daly_interval_s(double cost_s, double between_failures_s);

/// The times that steps and copies of a run have taken, and the frequencies that follow.
class SnapshotFrequency {
 public:
  /// Steps after which the first ones say something; the very first is left out.
  static constexpr int64_t kLearned = 12;

  explicit SnapshotFrequency(double between_failures_s) : between_failures_s_(between_failures_s) {}
  bool chooses() const { return between_failures_s_ > 0; }

  /// Records a step, with or without a copy in memory beside it.
  void step(double seconds, bool with_copy);
  /// A copy that kept the rank from its steps so long besides.
  void copy_blocked(double seconds) { blocked_s_.push_back(seconds); }
  void saved(double seconds) { saved_s_.push_back(seconds); }
  int64_t steps() const { return steps_; }

  double step_s() const;
  /// The cost of a copy in memory: how much longer steps with one are, and at least the time that it kept the rank
  /// waiting.
  double copy_s() const;
  double save_s() const;
  /// Steps between two; 0: nothing of them was measured yet.
  int64_t copy_every() const { return steps_between(copy_s()); }
  int64_t save_every() const { return steps_between(save_s()); }

 private:
  int64_t steps_between(double cost_s) const;

  double between_failures_s_;
  int64_t steps_ = 0;
  std::vector<double> with_s_, without_s_, blocked_s_, saved_s_;
};

/// One line for the log.
std::string frequency_note(int64_t copy_every, int64_t save_every, double copy_s, double save_s, double step_s,
                           double between_failures_s);

}  // namespace heddle::session
