// The profile of the machine at hand, and what it says of a configuration.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/cost/machine_profile.h"
#include "heddle/runtime/forecast.h"
#include "heddle/train/run_config_plan.h"

namespace heddle::planner {

/// Where `heddle profile` puts that of a backend: $XDG_CACHE_HOME/heddle/machine.json, or in ~/.cache; of one that
/// has memory of its own machine-cuda.json.
std::string machine_profile_path(std::string_view backend = "host");

/// The profile in that file, or, where there is none, one that is measured now in a few seconds and kept there.
/// ConfigError where it was measured on another device than the backend's.
cost::MachineProfile machine_profile(const std::string& path, double seconds, const std::string& backend = "host");
/// Whether a profile says what ops of the backend take, or why not.
Support prices(const cost::MachineProfile& profile, std::string_view backend);

/// What the ops of a configuration take, each by itself.
std::vector<cost::OpTime> measure_config(const config::RunConfig& config);

/// Where the ranks of a job stand.
struct JobPlaces {
  cost::Link over = cost::Link::threads;
  std::vector<int> machine_of, node_of;  // of each rank, as runtime::ForecastInput; empty: all on one
  int sharing_memory = 0;                // ranks on the node that has most; 0: all
  int threads = 0;  // of a rank, where the configuration leaves it open; 0: all share the cores
  /// Paced mode, as runtime::ForecastInput::pace_ns; null: as fast as the machine is.
  std::function<std::vector<std::vector<int64_t>>(const plan::Plan&, const plan::Lowered&)> pace;
  runtime::Uncertainty uncertainty;  // as runtime::ForecastInput; likewise below
  bool caching_allocator = false;
};

/// `ranks` spread evenly over hosts like this one. ConfigError where they can't be, or no link was measured.
JobPlaces on_hosts(int ranks, int hosts, const cost::MachineProfile& profile);

/// What a step of a configuration takes.
struct ConfigForecast {
  plan::Plan plan;
  plan::Lowered lowered;
  runtime::Forecast forecast;
  int64_t limit_bytes = 0;  // of a rank's memory
};
/// ir::OutOfMemory where a rank's memory is not enough. `tried`: as runtime::arena_bytes.
ConfigForecast forecast_config(const config::RunConfig& config, const cost::MachineProfile& profile,
                               const JobPlaces& places = {}, bool tried = true);

}  // namespace heddle::planner
