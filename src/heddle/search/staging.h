// A job's pipeline stage by stage: layers spread over the stages so that no rank waits for another, the seconds and
// bytes of each stage from the blocks it holds, and the step from the schedule run action by action.
#pragma once

#include <string>
#include <vector>

#include "heddle/schedule/links.h"
#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"
#include "heddle/search/estimate.h"

namespace heddle::search {

/// The stages of a job as a schedule's timing and peaks need them.
struct Staged {
  schedule::Times times;                           // seconds, of each stage
  std::vector<schedule::StageBytes> stage_bytes;   // a microbatch's activations
  std::vector<int> layers;                         // of each stage, in the model's order; some may be 0
  std::vector<double> fixed_bytes, working_bytes;  // of each rank: weights and states; what a block works in
};
Staged stage_job(const Job& job, const Behaviour& behaviour, const schedule::Placement& placement);

/// The schedule of a job, ready to be timed; jobs with one key share it. ConfigError where it can't be made.
struct PreparedSchedule {
  explicit PreparedSchedule(const Job& job);
  PreparedSchedule(const PreparedSchedule&) = delete;  // links point into the schedule
  static std::string key(const Job& job);

  schedule::Schedule schedule;
  schedule::Links links;
  std::vector<int> order;
};

/// The step timed action by action.
struct Exact {
  double step_s = 0;
  double bubble_s = 0;                  // synchronous, of the busiest rank
  double exposed_s = 0;                 // communication that is not hidden
  std::vector<int> layers;              // of each stage
  std::vector<double> rank_peak_bytes;  // of each rank of the pipeline
  double peak_bytes = 0;                // of the fullest
};
/// ConfigError for an impossible job.
Exact exact_of(const Job& job, const Behaviour& behaviour = {});
Exact exact_of(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared);

}  // namespace heddle::search
