// Sums of gradients of which each rank holds a run (ZeRO, Rajbhandari et al., arXiv 1910.02054, stage 2).
//
// A microbatch's gradient has a place of its own from the first op that adds to it on. Behind the last such op it
// is reduce-scattered: the owner of a run adds its parts in rank order, in the sum's type. The owner adds this to a
// sum that lasts for the step. The whole stays in the table as the form of what is reserved (Space::nowhere).
#pragma once

#include <map>

#include "heddle/model/text/rank_text.h"

namespace heddle::passes {

/// On a differentiated listing, after exact_sums and before `update`. Sums of the parameters that Parameter::within
/// says are cut; `ranks` is the size of each such group. A sum that an op writes beside another is cut where that
/// is.
void shard_gradients(model::RankText& text, const std::map<std::string, int>& ranks);

}  // namespace heddle::passes
