// Joins the ops that the end of a step runs on each parameter. Neighbours of one kind become one op of its joined
// form (ops/update/joined), at the place of the first. See docs/features/join_updates.md.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Joins ops that run once a step, are of one parameter with one gradient on the device, and differ in nothing but
/// their parameter. One joins an earlier one only where nothing between them touches what it reads or writes. It
/// must also wait for no op of another stream that the first, or what comes before it on its stream, doesn't wait
/// for. So no update begins later than it would.
void join_updates(ir::Listing& listing);

}  // namespace heddle::passes
