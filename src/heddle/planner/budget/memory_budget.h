// memory.budget: chooses the values that a step drops (recomputes or sends to the host) and the place of its state.
// Every rank's arena stays within so many bytes whatever the router does, and the predicted step is the shortest
// that was found.
//
// For each residency of the state (budget/state_residencies) the ranks of the pipeline drop what they must
// (budget/drop_values). Their steps are predicted block by block (simulate/block_times). The shortest is walked
// dry, rank by rank: with all rows that any routing brings, with as many as leave its limits alone, and with these
// by turns. Where a rank needs more than the estimate, it drops more; where it needs less, it takes back what it
// can.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"

namespace heddle::planner {

/// A step in the waterfall of a rank's bytes: what it adds, or frees.
struct ByteStep {
  std::string name;
  double bytes = 0;        // below 0: freed
  bool of_choice = false;  // the choice frees it
};

struct BudgetChoice {
  std::vector<std::string> settings;  // "memory.recompute=…", as a configuration takes them
  std::vector<std::string> why;       // a line each: what it frees, and its price
  double step_us = 0, free_us = 0;    // the predicted step, and that of the run without a budget
  int64_t bytes = 0;                  // bytes of the fullest rank, with the rows that take most
  std::vector<int64_t> rank_bytes;    // bytes of each pipeline rank, likewise
  int fullest = 0;                    // the pipeline rank that would take most without a budget
  std::vector<ByteStep> waterfall;    // that rank's: what it would take, what frees how much, up to its bytes
  double seconds = 0, processor_seconds = 0;     // taken by the choice
  int lowerings = 0, walks = 0, worked_out = 0;  // made by it: of programs; of ranks; of what texts keep

  std::string recompute() const;  // the words of memory.recompute, "" where it is left alone
};

/// Returns nothing without a budget, or where the configuration leaves nothing to choose. Settings that it has stay
/// as they are. ConfigError with the least budget where nothing fits. `own_memory`: whether the device has a memory
/// that is not the host's, so that values and state may go there; none: as its backend says.
std::optional<BudgetChoice> within_budget(const config::RunConfig& config, std::optional<bool> own_memory = {});

/// The settings of within_budget; `tell` gets the lines about them.
std::vector<std::string> budget_settings(const config::RunConfig& config,
                                         const std::function<void(const std::string& line)>& tell);

/// The configuration of a file with these settings and those, and with a place for optimizer state if that is left
/// open (planner/memory/state_residency). It is reported on standard error.
struct WithinBudget {
  config::RunConfig config;
  std::optional<BudgetChoice> choice;
};
WithinBudget read_within_budget(const std::string& path, const std::vector<std::string>& set);

}  // namespace heddle::planner
