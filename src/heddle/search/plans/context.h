// The way of context parallelism (parallel.context) among those that a search may choose from: the one with which
// attention takes least time. Where whole programs are simulated, planner/simulated_plans.h has the last word.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/estimate.h"

namespace heddle::search {

/// The words that have an estimate; `gather` is estimated as `ring`.
std::vector<std::string> context_words();

/// Fits the runs of `hybrid` and `double_ring` to the job's ranks and heads: one each is a ring, all ranks are
/// `ulysses` or a ring.
void fit_context(Job& job);

/// The job with each of these ways that its heads allow. Of the runs that a way may have, it takes the longest in
/// one fast domain.
std::vector<Job> with_each_context(const Job& job, const std::vector<std::string>& words);

/// Sets the job's way to that of these words with which its attention takes least time, the first of equals.
/// Without words, or where its heads allow none, it has the way that is `asked` for.
void choose_context(Job& job, const Job& asked, const Behaviour& behaviour, const std::vector<std::string>& words);

}  // namespace heddle::search
