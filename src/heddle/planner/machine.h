// The profile of the machine at hand, and what it says of a configuration.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/cost/machine_profile.h"
#include "heddle/runtime/step_prediction.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

/// The place where `heddle profile` puts a backend's profile: $XDG_CACHE_HOME/heddle/machine.json, or in ~/.cache.
/// A backend that has memory of its own has machine-cuda.json.
std::string machine_profile_path(std::string_view backend = "host");

/// The profile in that file, or, where there is none, one that is measured now in a few seconds and kept there.
/// ConfigError where it was measured on another device than the backend's.
cost::MachineProfile machine_profile(const std::string& path, double seconds, const std::string& backend = "host");
/// Support if a profile has times of the backend's ops, or the reason why not.
Support prices(const cost::MachineProfile& profile, std::string_view backend);

/// Times of a configuration's ops, each by itself.
std::vector<cost::OpTime> measure_config(const config::RunConfig& config);

/// Places of the ranks of a job.
struct JobPlaces {
  cost::Link over = cost::Link::threads;
  std::vector<int> machine_of, node_of;  // places of each rank, as runtime::PredictionInput; empty: all on one
  int sharing_memory = 0;                // ranks on the node that has most; 0: all
  int threads = 0;                       // threads of a rank, where the configuration leaves it open; 0: all share
                                         // the cores
  /// Paced mode, as runtime::PredictionInput::pace_ns; null: as fast as the machine is.
  std::function<std::vector<std::vector<int64_t>>(const plan::Plan&, const plan::Lowered&)> pace;
  runtime::Uncertainty uncertainty;  // as runtime::PredictionInput; likewise below
  bool caching_allocator = false;
};

/// `ranks` spread evenly over hosts like this one. ConfigError where they can't be, or no link was measured.
JobPlaces on_hosts(int ranks, int hosts, const cost::MachineProfile& profile);

/// The prediction of a configuration's step.
struct ConfigPrediction {
  plan::Plan plan;
  plan::Lowered lowered;
  runtime::StepPrediction prediction;
  int64_t limit_bytes = 0;  // a rank's memory
};
/// ir::OutOfMemory where a rank's memory is not enough. `tried`: as runtime::arena_bytes.
ConfigPrediction predict_config(const config::RunConfig& config, const cost::MachineProfile& profile,
                                const JobPlaces& places = {}, bool tried = true);

}  // namespace heddle::planner
