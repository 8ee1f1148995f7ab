// Places for persistent values: the switches that keep every bit and whose row names residencies to a planner
// (plan/switches). A new one is a row there, nothing here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/plan/switches.h"

namespace heddle::planner {

/// True if the configuration's device has a memory that is not the host's.
bool has_own_memory(const config::RunConfig& config);
/// True if a switch does anything on these ranks and such a device.
bool matters(const plan::Planned& planned, const config::RunConfig& config, bool own_memory);

/// Residencies: each a row with its value.
struct StateResidencies {
  std::vector<std::pair<const plan::Setting<plan::Choices>*, plan::Value>> of;

  void set(plan::Choices& choices) const;
  std::vector<std::string> settings() const;  // "memory.optimizer=swap", …
};

/// The alternatives to each row that the configuration leaves as it is by default, a residency each.
std::vector<std::vector<StateResidencies>> residency_rows(const config::RunConfig& config, bool own_memory);

}  // namespace heddle::planner
