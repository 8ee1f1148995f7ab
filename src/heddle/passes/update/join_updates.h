// What the end of a step does to each parameter, joined: neighbours of one kind become one op of its joined form
// (ops/update/joined), at the place of the first. See docs/features/join_updates.md.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Joins ops that run once a step, are of one parameter with one gradient on the device, and differ in nothing but
/// their parameter. One joins an earlier one only where nothing between them touches what it reads or writes, and
/// where it waits for no op of another stream that the first, or what comes before it on its stream, doesn't wait
/// for: no update begins later than it would.
void join_updates(ir::Listing& listing);

}  // namespace heddle::passes
