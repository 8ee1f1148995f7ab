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

struct ChosenResidency {
  plan::StateCost chosen;
  std::vector<plan::StateCost> costs;  // costs of every home; none where the device has room
};

/// The home, or nothing unless the configuration leaves it open. A home "fits" if training would not refuse it
/// (memory.budget, device.memory_bytes, the device's memory). Where nothing fits, the home that takes least of the
/// device: training says what is wanting.
std::optional<ChosenResidency> choose_residency(const config::RunConfig& config);

/// The home as settings that a configuration takes, "memory.optimizer=…"; `tell` gets one line about it.
std::vector<std::string> residency_settings(const config::RunConfig& config,
                                            const std::function<void(const std::string& line)>& tell);

}  // namespace heddle::planner
