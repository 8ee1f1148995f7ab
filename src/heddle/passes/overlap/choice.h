// The choice of products that go into one op with their collectives (passes/overlap/fused). Also the choice of
// which way of overlapping tensor parallelism's collectives is the shortest, by what ops last.
#pragma once

#include "heddle/ir/listing.h"
#include "heddle/passes/overlap/panels.h"

namespace heddle::passes {

/// Fuses every pair into as many pieces as stated. Else it fuses, of the pairs that are shorter in one op, those
/// kinds with which forward and backward are shortest. A kind is the same phase, product and sizes in all layers;
/// each gets the number of pieces that makes its op shortest. An op that communicates while it computes keeps other
/// products waiting. So what weaving hides beside weight gradients is better left as it is.
void fuse_by_rates(ir::Listing& listing, const Panels& panels, const Durations& durations);

/// Fuses pairs, cuts the rest into panels, or does one of both, whichever makes forward and backward shortest;
/// leaves the listing as it is where nothing makes them 2 % shorter.
void overlap_by_cost(ir::Listing& listing, const Panels& panels, const Durations& durations);

}  // namespace heddle::passes
