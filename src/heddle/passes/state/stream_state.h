// Optimizer state that lies on the host and streams through the device: of every op that works element by element
// on state that persists (OpDef::by_element), a slice at a time is copied into one of three slots, updated there,
// and copied back, so that copies both ways and the update run beside each other. Where a slice lies in the end,
// and every bit of it, is as without.
//
// An update that runs ahead of the norm writes its slices beside the old ones, into the copy that is kept for
// taking it back, and the two flip; what takes it back reads the old slices there and writes over the new ones. So
// nothing is copied to keep state, and nothing to take it back.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// What goes, and in which slices: passes/state/state_slices. `bytes_per_us`: of a copy between device and host.
void stream_state(ir::Listing& listing, double bytes_per_us);

/// Moves to the host what ops of the end, or of the check, may update there (OpDef::reaches_host), where nothing
/// else uses it but what keeps a copy of it, which the host's processor does then.
void map_state(ir::Listing& listing);

}  // namespace heddle::passes
