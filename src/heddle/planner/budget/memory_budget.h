// memory.budget: what a step gives up of what it keeps, and where its state lies, so that every rank's arena stays
// within so many bytes whatever the router does, and the foretold step is the shortest that was found.
//
// For each residency of the state (budget/state_homes) the ranks of the pipeline give up what they must
// (budget/give_up); the steps of these are foretold block by block (simulate/block_times), and the shortest is
// walked dry, rank by rank, with all the rows that any routing brings, with as many as leave its limits as they
// are, and with these by turns. Where a rank needs more than was reckoned, it gives up more; where it needs less,
// it takes back what it can.
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
  bool of_choice = false;  // what was chosen frees it
};

struct BudgetChoice {
  std::vector<std::string> settings;  // that a configuration takes: "memory.recompute=…"
  std::vector<std::string> why;       // a line each: what it frees, and its price
  double step_us = 0, free_us = 0;    // the foretold step, and that of the run without a budget
  int64_t bytes = 0;                  // what the fullest rank takes, with the rows that take most
  std::vector<int64_t> rank_bytes;    // likewise each pipeline rank
  int fullest = 0;                    // the pipeline rank that would take most without a budget
  std::vector<ByteStep> waterfall;  // of that rank: what it would take, what frees how much, adding up to its bytes
  double seconds = 0, processor_seconds = 0;     // that the choice took
  int lowerings = 0, walks = 0, worked_out = 0;  // that it took: of programs; of ranks; of what texts keep

  std::string recompute() const;  // the words of memory.recompute, "" where it is left alone
};

/// Nothing without a budget, or where the configuration leaves nothing to choose. What it sets stays as it is.
/// ConfigError with the least budget where nothing fits. `own_memory`: whether the device has a memory that is not
/// the host's, so that values and state may go there; none: as its backend says.
std::optional<BudgetChoice> within_budget(const config::RunConfig& config, std::optional<bool> own_memory = {});

/// The settings of within_budget; `tell` gets the lines about them.
std::vector<std::string> budget_settings(const config::RunConfig& config,
                                         const std::function<void(const std::string& line)>& tell);

/// The configuration of a file with these settings and those, and where optimizer state lies if that is left open
/// (planner/memory/state_home), told on standard error.
struct WithinBudget {
  config::RunConfig config;
  std::optional<BudgetChoice> choice;
};
WithinBudget read_within_budget(const std::string& path, const std::vector<std::string>& set);

}  // namespace heddle::planner
