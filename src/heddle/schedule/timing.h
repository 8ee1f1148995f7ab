// The time at which each action of a schedule runs, for given durations. The machine is ideal: its ranks run their
// lists in order, each action as soon as what it needs has arrived.
//
// An action lasts the sum of its parts: F, I, W or B = I + W. An exposed all-to-all comes on top in every F and in
// every I (a B holds one I). A fused pair hides its exchanges: it lasts `pair` times F + B. What another rank
// computed arrives a hop later; sending takes no time of the sender.
//
// Two bubbles must not be mixed up. Synchronous: all ranks begin and end a step together (the norm of all gradients
// is needed before the update): makespan − work. Staggered: a rank may begin its next step when it is done. It is
// the longest time from a rank's first action to the end of its last, − work, as the Zero Bubble papers print it.
// Work is the busiest rank's time in actions, exposed exchanges included.
#pragma once

#include <vector>

#include "heddle/schedule/links.h"
#include "heddle/schedule/schedule.h"

namespace heddle::schedule {

struct StageTimes {
  double forward = 1, input_grad = 1, weight_grad = 1;
  double all_to_all = 0;  // exposed in the forward, and again in the input gradient
  /// Without exchanges.
  double sum() const { return forward + input_grad + weight_grad; }
  bool operator==(const StageTimes&) const = default;
};

struct Times {
  std::vector<StageTimes> stages;  // of each stage of the model
  double pair = 1;                 // a fused pair lasts so many times its parts without their exchanges
  double hop = 0;                  // from rank to rank
};

/// Equal stages: `rank` is what all stages of one rank take together.
Times even_times(const Placement& placement, const StageTimes& rank = {}, double pair = 1, double hop = 0);

/// The duration of an action.
double duration_of(const Placement& placement, const Times& times, const Action& action);

struct Interval {
  double start = 0, end = 0;
};

struct Timing {
  std::vector<std::vector<Interval>> of;  // rank, action
  std::vector<double> busy;               // of each rank: time in actions
  double makespan = 0;
  double span = 0;    // the longest of a rank's first start to its last end
  double work = 0;    // the busiest rank's
  double useful = 0;  // the same of F, I and W alone: without exchanges, pairs as their parts

  double synchronous() const { return makespan - work; }
  double staggered() const { return span - work; }
  double synchronous_rate() const { return makespan > 0 ? synchronous() / makespan : 0; }
  double staggered_rate() const { return span > 0 ? staggered() / span : 0; }
  double efficiency() const { return makespan > 0 ? useful / makespan : 1; }
};

/// Throws ConfigError for a schedule that can't go on, with the picture, and where times aren't finite or below 0.
Timing timing_of(const Schedule& schedule, const Times& times);
/// The timing of a schedule whose links and running order are known.
Timing timing_of(const Schedule& schedule, const Times& times, const Links& links, const std::vector<int>& order);

}  // namespace heddle::schedule
