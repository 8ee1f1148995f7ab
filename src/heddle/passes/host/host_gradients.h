// Sums of weight gradients that lie on the host: each is on the device while a microbatch adds to it.
//
// Ahead of the op that adds stands a copy_in, as late as it may (passes/host/link_times), behind it a copy_out. The
// first microbatch of a step overwrites the sum, so nothing is copied for it: its copy_in is `later` and only makes
// room. The sum is added to in place, as it would be on the device, so that no bit changes. What reads sums at the
// end of the step reads a copy that comes back for it, bucket by bucket.
#pragma once

#include <map>

#include "heddle/passes/host/residency_words.h"
#include "heddle/passes/weave.h"

namespace heddle::passes {

/// After `update`, and after host_weights, whose copies take the link first. Of each weight: whether its sums go.
/// `deferred`: the schedule runs I and W of a microbatch apart; sums are then not fetched ahead of their block,
/// since the one before may be adding to them.
void host_gradients(ir::Listing& listing, const std::map<ir::ValueId, Residency>& residencies, bool deferred,
                    const Durations& duration_us);

}  // namespace heddle::passes
