// Weight gradients whose sums are exact, so that no layout can change them.
//
// Each partial gradient (of one microbatch, and for an expert of one source rank) is rounded to multiples of
// 2^kExactGrid. Sums of such numbers are exact in fp64 while they stay below 2^(53 + kExactGrid), so their order
// does not matter: over microbatches, ranks or nodes. The sum is rounded once to the gradient's type; the norm is
// summed in 128-bit fixed point. With the same global microbatches, every degree of dp, ep and pp, every schedule
// and every dispatcher then gives the same weights, bit for bit.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Run after differentiation, before `update`, which must know of it. Each accumulator becomes that of one
/// microbatch, and gets an fp64 one beside it.
void exact_sums(ir::Listing& listing);

}  // namespace heddle::passes
