// Plans of Heddle's own whose step programs fit. The plans that a search takes for the best are lowered and walked.
// Where a program needs more than the estimate has, the search is asked again for plans that leave so much more
// room.
#pragma once

#include <functional>

#include "heddle/search/search.h"

namespace heddle::planner {

/// Puts the first so many plans of an answer in the order in which they are to stand, and counts the first
/// (count_program). Whether it fits.
using OrderPlans = std::function<bool(search::Answer& answer, int plans)>;

/// The search's answer, whose first few plans are counted (Ranked::reserved_bytes) and fit. Those that don't fit
/// are left out, and those that follow are estimates. The few are counted by a shorter step and ordered. Then the
/// first is counted as `heddle inspect` counts it: live and reserved bytes of its fullest rank in an arena of at
/// most the limit. It must fit there with the experts' rows at their 99th percentile too. `search` runs a query;
/// empty with the reason in Answer::misfit where nothing was found.
search::Answer fitting_plans(const search::Query& query,
                             const std::function<search::Answer(const search::Query&)>& search,
                             const OrderPlans& order);

/// Counts the plan's program as `heddle inspect` does, its experts' rows at their 99th percentile. Whether it fits;
/// where it doesn't, the plan says what it takes.
bool count_program(search::Ranked& plan, double limit_bytes);

}  // namespace heddle::planner
