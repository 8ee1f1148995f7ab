// The length of a run and its progress, counted in steps or in the time spent in steps.
//
// By the clock, steps come out as they do. Only steps count. All ranks share their time, of the slowest rank, in
// the same bits (StepResult::seconds), so all take the same decisions, and a run that goes on carries it on.
// Evaluations of the held-out text, checkpoints and reports take their own time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::config {

/// The progress of a run.
struct RunProgress {
  int64_t steps = 0;
  double seconds = 0;  // spent in them
  bool operator==(const RunProgress&) const = default;
};

struct RunLength {
  int64_t steps = 1;
  double seconds = 0;  // above 0: by the clock, and `steps` is nothing

  bool by_clock() const { return seconds > 0; }
  bool reached(const RunProgress& done) const { return by_clock() ? done.seconds >= seconds : done.steps >= steps; }
  /// The part of the whole that is done, 0 to 1.
  double share(const RunProgress& done) const {
    return std::min(
        1.0, by_clock() ? done.seconds / seconds : static_cast<double>(done.steps) / static_cast<double>(steps));
  }
  /// Steps of the whole run: by the clock what the steps so far let expect, before the first one kUnknownSteps.
  double expected_steps(const RunProgress& done) const {
    if (!by_clock()) return static_cast<double>(steps);
    return done.seconds > 0 ? seconds * static_cast<double>(done.steps) / done.seconds : kUnknownSteps;
  }
  /// The end of the next step, in the run's own measure: its number from 1, or seconds.
  double end_of_next(const RunProgress& done) const {
    if (!by_clock()) return static_cast<double>(done.steps + 1);
    return done.seconds + seconds / expected_steps(done);
  }

  static constexpr double kUnknownSteps = 1000;
};

}  // namespace heddle::config
