// A feature of training that remembers something from step to step, or decides by the steps done what the next one
// is to do. It writes inputs of a step before it runs, and learns from what the step leaves.
//
// A controller uses only what every rank knows, so that all ranks decide alike: its state is the same on every
// rank, to the bit (Controllers::agree compares it). There is no call from within a step: what acts there is an op,
// and stands in the program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "heddle/config/run_length.h"
#include "heddle/device/inputs.h"

namespace heddle::observe {
class Figures;
}  // namespace heddle::observe

namespace heddle::train {

struct StepResult;

/// The step that comes next.
struct NextStep {
  config::RunProgress done;        // progress of the run before the step
  std::span<const double> scales;  // the factors of its loss terms
  int64_t number() const { return done.steps + 1; }
};

/// Results of a step.
struct Readings {
  const StepResult& result;
  /// This rank's norm, and every other's: that of `result` is their mean, which is rounded once more.
  double gradient_norm;
};

class Controller {
 public:
  Controller() = default;
  virtual ~Controller() = default;
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  /// Gives its standing inputs, which every run of the program takes, evaluations among them.
  virtual void stand(device::Inputs& /*standing*/) const {}
  /// Gives its inputs of a training step, which is about to run.
  virtual void before(const NextStep& /*step*/, device::Inputs& /*inputs*/) {}
  /// The step has run on this rank; its statistics are not known yet. Takes back those inputs that must not be
  /// taken a second time, should the step be run again. Returns true if its standing inputs are others now.
  virtual bool ran(device::Inputs& /*inputs*/) { return false; }
  /// Learns from a step, and tells its figures. Steps come in their order; one whose loss or norm is not finite
  /// comes only where the program has left it out.
  virtual void after(const Readings& /*step*/, observe::Figures& /*figures*/) {}

  /// All that it remembers, the same on every rank; null: nothing yet. It stands in checkpoints.
  virtual nlohmann::json state() const;
  /// Goes on from a state that `state` has returned and its row has found sound. Null: as before the first step.
  virtual void restore(const nlohmann::json& /*state*/) {}
};

}  // namespace heddle::train
