// memory.budget: what a step's backward makes again, and beyond how many rows, so that a rank's arena stays within
// so many bytes whatever the router does.
//
// Choices are tried from the one that computes least again to the one that keeps least; each is lowered, and walked
// dry with all the rows that any routing brings, with as many as leave its limits as they are, and with these by
// turns. The first that fits is taken, the same on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/config/run_config.h"

namespace heddle::planner {

/// One way to hold less.
struct Residency {
  std::string recompute;  // for memory.recompute
  double again = 0;       // time of what is made again over that of all else, with balanced rows, by nominal rates
  int64_t bound_bytes = 0;  // the most that a rank's arena takes
};

struct BudgetChoice {
  Residency chosen;
  std::vector<std::string> refused;  // the words that were tried before and need more
};

/// Nothing without a budget, or where memory.recompute says already what is made again. ConfigError with the least
/// budget where nothing fits.
std::optional<BudgetChoice> within_budget(const config::RunConfig& config);

/// The same as settings that a configuration takes, "memory.recompute=…"; `tell` gets one line about them: what was
/// chosen, what it takes, and its price.
std::vector<std::string> budget_settings(const config::RunConfig& config,
                                         const std::function<void(const std::string& line)>& tell);

/// The configuration of a file with these settings and those, told on standard error.
config::RunConfig read_within_budget(const std::string& path, const std::vector<std::string>& set);

}  // namespace heddle::planner
