// The profile of the machine at hand, and what it says of a configuration.
#pragma once

#include <string>
#include <vector>

#include "heddle/cost/machine_profile.h"
#include "heddle/runtime/forecast.h"
#include "heddle/train/run_config.h"

namespace heddle::cli {

/// Where `heddle profile` puts it: $XDG_CACHE_HOME/heddle/machine.json, or in ~/.cache.
std::string machine_profile_path();

/// The profile in that file, or, where there is none, one that is measured now in a few seconds and kept there.
cost::MachineProfile machine_profile(const std::string& path, double seconds);

/// What the ops of a configuration take, each by itself.
std::vector<cost::OpTime> measure_config(const train::RunConfig& config);

/// What a step of a configuration takes with its ranks as threads of one process.
struct ConfigForecast {
  plan::Plan plan;
  plan::Lowered lowered;
  runtime::Forecast forecast;
  int64_t limit_bytes = 0;  // of a rank's memory
};
ConfigForecast forecast_config(const train::RunConfig& config, const cost::MachineProfile& profile);

}  // namespace heddle::cli
