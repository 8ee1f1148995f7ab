// A job's pipeline stage by stage. Layers are spread over the stages so that no rank waits for another. The blocks
// of a stage give its seconds and bytes, and the schedule, run action by action, gives the step.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "heddle/schedule/links.h"
#include "heddle/schedule/timing.h"
#include "heddle/schedule/validate.h"
#include "heddle/search/block_work.h"
#include "heddle/search/estimate.h"

namespace heddle::search {

/// Treatment of a forward's values that the backward reads: some are computed again, some go to the host.
struct Keeping {
  Recompute recompute;
  bool offload = false;
  bool operator==(const Keeping&) const = default;
};

/// The stages of a job as a schedule's timing and peaks need them.
struct Staged {
  schedule::Times times;                           // seconds, of each stage
  std::vector<schedule::StageBytes> stage_bytes;   // a microbatch's activations
  std::vector<int> layers;                         // [stage], in the model's order; some may be 0
  std::vector<double> fixed_bytes, working_bytes;  // [rank]: weights and states; work space of a block
  std::vector<double> host_bytes;                  // [rank]: persistent bytes on the host
  std::vector<Waterfall> time;                     // [stage]: parts of its times, for a microbatch there and back
};
Staged stage_job(const Job& job, const Behaviour& behaviour, const schedule::Placement& placement);

/// Seconds of one microbatch in a layer, and the exchange apart where schedules hide it.
struct LayerTimes {
  double forward = 0, input_grad = 0, weight_grad = 0;
  double exchange = 0;         // each direction's, alone
  double exposed_in_pair = 0;  // both directions', beside another microbatch
  double spare_in_pair = 0;    // compute of a pair beyond what its hidden exchange takes

  LayerTimes& operator+=(const LayerTimes& t);
  LayerTimes scaled(double factor) const;
  double sum() const { return forward + input_grad + weight_grad; }
  // No more is hidden than there is compute to hide it.
  double paired_exchange() const { return std::max(0.0, -spare_in_pair) + exposed_in_pair; }
};

/// A job's layers priced for each of several ways of keeping: stages of any of them are put together from it.
class StageCosts {
 public:
  StageCosts(const Job& job, const Behaviour& behaviour, const std::vector<Keeping>& ways);

  /// Layers of each stage so that ranks have the same work, where stage s keeps in way `way_of_stage[s]`.
  std::vector<int> spread(const schedule::Placement& placement, const std::vector<int>& way_of_stage) const;
  Staged staged(const schedule::Placement& placement, const std::vector<int>& way_of_stage,
                std::vector<int> layers) const;

  /// All seconds and the bytes kept of a mean layer and a microbatch.
  double layer_s(int way) const;
  double kept_bytes(int way) const { return of(way).memory.mean.kept; }

 private:
  struct Way {
    LayerTimes mean, dense, moe, tail;
    Work mean_work, dense_work, moe_work, tail_work;  // both directions
    MemoryParts memory;
    double embedding_copies_s = 0;
  };
  const Way& of(int way) const { return ways_[static_cast<size_t>(way)]; }

  Job job_;
  double hop_s_ = 0, overlapped_hop_s_ = 0;
  std::vector<Way> ways_;
};

/// Stages with the layers and ways of keeping that are given.
Staged stage_job(const Job& job, const Behaviour& behaviour, const schedule::Placement& placement,
                 const std::vector<Keeping>& keeping, const std::vector<int>& layers);

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
  Waterfall time;           // the busiest rank's, adding up to step_s; its bubble is the synchronous one
  double exposed_s = 0;     // communication that is not hidden
  std::vector<int> layers;  // [stage]
  std::vector<double> rank_peak_bytes;  // [rank of the pipeline]
  double peak_bytes = 0;                // the fullest rank's
  double host_bytes = 0;                // persistent bytes on the host of the rank that keeps most there
};
/// True if the job's device has so many bytes, and its host what the plan keeps there.
bool fits(const Exact& exact, const Job& job, double memory_bytes);
/// Times a job action by action. ConfigError for an impossible one.
Exact exact_of(const Job& job, const Behaviour& behaviour = {});
Exact exact_of(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared);
Exact exact_of(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared, const Staged& staged);
/// Times a job that fits; its bytes are known before any time is. Of another it returns nothing.
std::optional<Exact> exact_within(const Job& job, const Behaviour& behaviour, const PreparedSchedule& prepared,
                                  double memory_bytes);
/// Takes a timing and peaks that are there already.
Exact exact_of(const Job& job, const Behaviour& behaviour, const schedule::Schedule& schedule, const Staged& staged,
               const schedule::Timing& timing, const std::vector<schedule::Peak>& peaks);

}  // namespace heddle::search
