// The second round of experts' rows: what finds no room in the first (moe.room_factor) is computed in the same
// step, forward and backward. See docs/features/room.md.
//
// A rank's rows of a layer and microbatch are all of one round, by counts that every rank knows. So each op on the
// first round's rows gets another behind it that works on those of the second, and one of the two has none. Sums
// over rows (weight gradients) stay those of one op: the other adds nothing. Ops that bring rows home take those of
// both rounds, for a token's sum goes over all of them. Kernels and messages find which rows there are; the host
// does not ask.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// On a differentiated listing, whose exchanges say the room of both rounds (`rest`). What the second round makes
/// is made again for the backward (passes/recompute).
void second_round(ir::Listing& listing);

}  // namespace heddle::passes
