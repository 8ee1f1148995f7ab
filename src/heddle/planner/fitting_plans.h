// Plans of Heddle's own whose step programs fit: what a search takes for the best is lowered and walked, and where
// its program needs more than the estimate has, the search is asked again for plans that leave so much more room.
#pragma once

#include <functional>

#include "heddle/search/search.h"

namespace heddle::planner {

/// The search's answer with plans of which the first few are counted (Ranked::reserved_bytes) and fit; those that
/// don't are left out, and those that follow are estimates. The first is counted as `heddle inspect` counts it, the
/// others by a shorter step. `search` runs a query; empty with the reason in Answer::misfit where nothing was
/// found.
search::Answer fitting_plans(const search::Query& query,
                             const std::function<search::Answer(const search::Query&)>& search);

/// The plan's program counted as `heddle inspect` does: live_bytes and reserved_bytes of its fullest rank in an
/// arena of at most `limit_bytes`, and whether it fits there, with the experts' rows at their 99th percentile too.
/// Where it doesn't, what it takes.
bool count_program(search::Ranked& plan, double limit_bytes);

/// Where plans have changed places since: counts the first so, and drops it if it doesn't fit, until one does.
void count_first(search::Answer& answer);

}  // namespace heddle::planner
