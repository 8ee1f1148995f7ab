// The time that a rank waits for another that is alive and does not come, by what all are about to do. A rank that
// hangs in a plain step is found after many times the length of such a step, whatever was done before it. An
// evaluation, a checkpoint and a report have limits of their own.
#pragma once

#include <cstdint>
#include <functional>

namespace heddle::session {

class Patience {
 public:
  /// `set` receives each limit, in seconds.
  explicit Patience(std::function<void(double limit_s)> set) : set_(std::move(set)) {}

  /// The bytes of a whole checkpoint, and the nodes that write it.
  void of_state(int64_t bytes, int nodes) { node_bytes_ = bytes / (nodes > 0 ? nodes : 1); }

  // Calls before the work.

  /// A step of so many sequences.
  void step(int64_t batch) { set_(step_limit_s(batch)); }
  /// A forward pass of so many sequences, and so many tokens of text one after another.
  void look(int64_t sequences, int64_t tokens) { set_(look_limit_s(sequences, tokens)); }
  void save() { set_(save_limit_s()); }
  /// Work of no known length: preparing, going back.
  void anything() { set_(kAnything_s); }
  /// Files that rank 0 writes for those who look on.
  void report() { set_(kReport_s); }

  // Calls after the work, with the time that it took.

  void stepped(double seconds, int64_t batch);
  void saved(double seconds) { longest_save_s_ = seconds > longest_save_s_ ? seconds : longest_save_s_; }

  double step_limit_s(int64_t batch) const;
  double look_limit_s(int64_t sequences, int64_t tokens) const;
  double save_limit_s() const;

  static constexpr double kAnything_s = 1800, kReport_s = 300, kLeastStep_s = 60, kLeastSave_s = 300;
  static constexpr double kTimes = 20;             // multiple of the time that it has taken
  static constexpr double kSlowestDisk_B_s = 1e7;  // written and read back

 private:
  std::function<void(double)> set_;
  int64_t node_bytes_ = 0;
  double first_s_ = 0, longest_s_ = 0;  // time of a sequence: in the first step, and in later ones
  int64_t steps_ = 0;
  double longest_save_s_ = 0;
};

}  // namespace heddle::session
