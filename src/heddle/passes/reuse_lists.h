// List reuse: one host stall a MoE layer and microbatch.
//
// The listing gives each exchange of a layer row counts of its own: share_counts and counts_to_host, at which the
// host waits. All count the same choice of experts, so all but the first are taken out: the other exchange forward
// and both backward read the first one's lists. See docs/features/reuse_lists.md.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Replaces every share_counts and counts_to_host by an earlier one with the same operands and attributes. After
/// differentiation.
void reuse_lists(ir::Listing& listing);

}  // namespace heddle::passes
