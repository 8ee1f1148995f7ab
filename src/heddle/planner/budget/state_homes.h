// Where what persists may lie: the switches of memory.* that keep every bit and whose row says which of their words
// a planner tries (plan/switches). A new residency is a row there, nothing here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/config/run_config.h"
#include "heddle/plan/switches.h"

namespace heddle::planner {

/// Whether the configuration's device has a memory that is not the host's.
bool has_own_memory(const config::RunConfig& config);
/// Whether a switch does anything on these ranks and such a device.
bool matters(const plan::Planned& planned, const config::RunConfig& config, bool own_memory);

/// Residencies: each a row with its value.
struct StateHomes {
  std::vector<std::pair<const plan::Setting<plan::Choices>*, plan::Value>> of;

  void set(plan::Choices& choices) const;
  std::vector<std::string> settings() const;  // "memory.optimizer=swap", …
};

/// Each combination of what the configuration leaves as it is by default; the first is none of them.
std::vector<StateHomes> state_homes(const config::RunConfig& config, bool own_memory);

}  // namespace heddle::planner
