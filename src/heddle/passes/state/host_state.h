// Optimizer state that lies on the host and is updated there, by the host's processor. A gradient goes to the host
// as soon as it is summed. Ops that work element by element on state that persists (OpDef::by_element) run there a
// slice at a time. What else they update, which stays on the device, comes back slice by slice. So gradients on
// their way out, updates and weights on their way in run beside each other. The bits are those of the update on the
// device, as far as the kernels of both round alike.
//
// Gradients leave in the order in which the backward makes them, the last layer's first. The first update waits for
// the norm of all of them, and so for the last.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// As stream_state moves it. `bytes_per_us`: of a copy between device and host.
void host_state(ir::Listing& listing, double bytes_per_us);

}  // namespace heddle::passes
