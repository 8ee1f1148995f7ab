// One run of `heddle train`. Each rank has one and goes through the same steps; rank 0 alone prints, and writes
// into the run's folder.
//
// A run is a trainer and a list of services. The trainer does the steps; services do all else: checkpoints,
// evaluation, figures, the report (services/services.h).
#pragma once

#include <memory>
#include <vector>

#include "heddle/session/run/place.h"
#include "heddle/session/run/summary.h"

namespace heddle::config {
struct RunConfig;
}

namespace heddle::session {

struct RunContext;
struct ServiceRow;
struct StepRecord;
struct Wishes;

/// The table of services (services/services.h).
const std::vector<ServiceRow>& service_rows();

class TrainingRun {
 public:
  /// Prepares everything up to the first step. With `resume` goes on from the newest whole checkpoint of the
  /// folder, or from the beginning where there is none yet. What `place` points to must outlive the run.
  TrainingRun(config::RunConfig config, bool resume, Telling telling, const RankPlace& place = {},
              const std::vector<ServiceRow>& rows = service_rows());
  ~TrainingRun();

  /// Trains to the last step, or until a process is asked to stop (Signals): then the step under way ends and
  /// a checkpoint is written. To be called once. The summary is rank 0's.
  RunSummary run();

 private:
  void introduce();
  Wishes asked();
  void step();
  RunSummary summary();

  std::unique_ptr<RunContext> run_;
};

}  // namespace heddle::session
