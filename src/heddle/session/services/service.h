// A service: one thing that a run does beside its steps, such as writing checkpoints, evaluating, or telling
// figures.
//
// The run calls every service at the same points, in the order of the table (services/services.cpp). That order is
// the same on all ranks, so a service may call collectives, provided that all ranks make the same calls. A service
// that only rank 0 has must call none.
#pragma once

#include <cstdint>

#include "heddle/observe/step_metrics.h"
#include "heddle/session/signals.h"

namespace heddle::observe {
struct ReportData;
}
namespace heddle::train {
struct StepResult;
}

namespace heddle::session {

struct RunContext;

/// A step that has run. It goes from service to service; those behind see what those before have left.
struct StepRecord {
  const train::StepResult& result;
  observe::StepMetrics metrics;  // the figures of the step: each service adds its own
  bool plain = true;             // false: more than a step was done, so the time that it took says nothing
  bool saves = false;            // a checkpoint follows
  bool evaluated = false;        // whether an evaluation was made
  double compute_share = 0;      // the step's share in which compute streams were busy; 0: it was not traced
};

class Service {
 public:
  /// The run outlives its services.
  explicit Service(RunContext& run) : run_(run) {}
  virtual ~Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Once, before the first step. The state is in place.
  virtual void start() {}
  /// Wishes that reached this rank since the last call. Those of all services and ranks are joined.
  virtual Wishes wishes() { return {}; }
  /// Gets the joined wishes before each step. With `stop` no step follows.
  virtual void grant(const Wishes&) {}
  /// Before step number `step`, after `grant`.
  virtual void before(int64_t /*step*/) {}
  /// After a step.
  virtual void after(StepRecord&) {}
  /// Called once, after the last step, however the run comes to its end; not after an error.
  virtual void end() {}
  /// Adds its part to a report. Rank 0 alone.
  virtual void report(observe::ReportData&) {}

 protected:
  RunContext& run_;
};

}  // namespace heddle::session
