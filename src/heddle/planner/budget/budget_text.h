// The choice of memory.budget, for people and programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "heddle/observe/terminal/terminal.h"
#include "heddle/planner/budget/memory_budget.h"

namespace heddle::planner {

/// "memory.budget 60.0 GiB: …", and a line for each choice: what it frees, and its price.
std::vector<std::string> lines_of(const BudgetChoice& choice, int64_t budget_bytes);

/// The fullest rank's bytes from what it would take to what it takes, with bars.
std::string waterfall_text(const BudgetChoice& choice, int64_t budget_bytes, const observe::Terminal& terminal);

nlohmann::ordered_json json_of(const BudgetChoice& choice, int64_t budget_bytes);

}  // namespace heddle::planner
