// Optimizer state that lies on the host and streams through the device. It concerns every op that works element by
// element on state that persists (OpDef::by_element). A slice at a time is copied into one of three slots, updated
// there, and copied back, so that copies both ways and the update run beside each other. The place of a slice in
// the end, and every bit of it, is as without.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Streams the state, in the slices of passes/state/state_slices. `bytes_per_us`: of a copy between device and
/// host.
void stream_state(ir::Listing& listing, double bytes_per_us);

/// Moves to the host what ops of the end may update there (OpDef::reaches_host), where nothing else uses it.
void map_state(ir::Listing& listing);

}  // namespace heddle::passes
