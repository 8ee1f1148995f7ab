// memory.optimizer = "auto": masters and moments stay on the device where all of it fits, else they go where the
// end of a step is shortest of what fits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/plan/costs/state_cost.h"

namespace heddle::planner {

struct HomeOfState {
  plan::StateCost chosen;
  std::vector<plan::StateCost> costs;  // of every home; none where the device has room
};

/// Nothing unless the configuration leaves it open. What "fits" is what training would refuse otherwise
/// (memory.budget, device.memory_bytes, the device's memory). Where nothing fits, the home that takes least of the
/// device: training says what is wanting.
std::optional<HomeOfState> home_of_state(const config::RunConfig& config);

/// The same as settings that a configuration takes, "memory.optimizer=…"; `tell` gets one line about it.
std::vector<std::string> home_settings(const config::RunConfig& config,
                                       const std::function<void(const std::string& line)>& tell);

}  // namespace heddle::planner
