// A plan's step and bytes, worked out once. Every output, as a table, JSON, a page or a picture, takes its figures
// from here, so that none of them can differ.
//
// The schedule is run action by action, with the plan's own layers and what each of its stages keeps. A job whose
// schedule can't be made has the closed forms alone, and the reason.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/search/launch.h"
#include "heddle/search/staging.h"

namespace heddle::search {

/// The schedule that was run, behind the figures.
struct TimedSchedule {
  std::shared_ptr<const PreparedSchedule> prepared;
  std::vector<Keeping> keeping;  // [stage]
  Staged staged;
  schedule::Timing timing;  // seconds; the step has its gradients, optimizer and jitter beside it
  std::vector<schedule::Peak> peaks;
  int fullest_rank = 0;
};

struct TimedPlan {
  Launch launch;
  Exact exact;
  std::optional<TimedSchedule> run;
  std::string untimed;  // why there is no `run`: the figures are then those of the closed forms
};

/// A step by the closed forms, for a schedule that can't be made.
Exact closed_step(const Estimate& estimate);

class PlanTimer {
 public:
  explicit PlanTimer(const Behaviour& behaviour = {}) : behaviour_(behaviour) {}

  /// Times a launch. ConfigError when the job has no estimate, with the reason.
  TimedPlan timed(const Launch& launch);

  /// Times the plan's layers, kept in the same ways, under another job that differs in nothing but devices, routing
  /// and what its software holds.
  Exact elsewhere(const TimedPlan& plan, const Job& job) const;

  const Behaviour& behaviour() const { return behaviour_; }

 private:
  std::shared_ptr<const PreparedSchedule> prepared(const Job& job);

  Behaviour behaviour_;
  std::map<std::string, std::shared_ptr<const PreparedSchedule>> made_;
};

}  // namespace heddle::search
