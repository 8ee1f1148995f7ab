// The way of context parallelism (parallel.context) among those that a search may choose from: the one with which
// attention takes least time.
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

/// Sets the job's way to that of these words with which its attention takes least time, the first of equals. Of the
/// runs that a way may have, it takes the longest in one fast domain. What the heads don't allow is left out.
/// Without words, or where none is left, it has the way that is `asked` for.
void choose_context(Job& job, const Job& asked, const Behaviour& behaviour, const std::vector<std::string>& words);

}  // namespace heddle::search
