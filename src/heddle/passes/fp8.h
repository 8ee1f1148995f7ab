// Rounds the operands of the layers' linear maps to eight bits (ops/fp8.cpp). It works on a differentiated listing,
// after what is made again is known:
//
//   n, rstd = rms_norm x, g                     n, rstd = rms_norm x, g
//   y = linear n, w                             n.fp8, n.scales = round_rows n
//   …                                           y = linear_fp8 n.fp8, n.scales, w
//   dn = linear_dgrad dy, w              →      …
//   linear_wgrad n, dy -> grad.w                dn = linear_fp8_dgrad dy, w
//                                               linear_fp8_wgrad n.fp8, n.scales, dy -> grad.w
//
// The backward thus keeps eight bits of n instead of n. Where something else of the backward reads n, or n is
// made again there, it is rounded once more beside its reader. Nothing of it is then kept in eight bits.
//
// The maps are those in a layer whose weight no other map reads, and whose operand and result have the weight's
// type. The router's map is wide, so it stays; so do the head and the embedding.
#pragma once

#include "heddle/ir/listing.h"
#include "heddle/passes/options/fp8.h"

namespace heddle::passes {

void fp8(ir::Listing& listing);

}  // namespace heddle::passes
