// Weights of products in eight bits (passes/fp8.h), rounded once a step. They change once a step, so all uses of a
// step round them to the same bits. It works behind the end of the step, once it is known where each weight lies:
//
//                                               round_weight w -> w.fp8, w.fp8_scales      (at the beginning)
//   y = linear_fp8 q, scales, w            →    y = linear_fp8 q, scales, w.fp8, none, w.fp8_scales {dtype bf16}
//   dx = linear_fp8_dgrad dy, w                 dx = linear_fp8_dgrad dy, w.fp8, w.fp8_scales
//
// Where the backend wants it, gradients read a second form, turned. Weights that come to the device for a while,
// from the host or from other ranks' runs, are rounded at each use. So are copies of other ranks' experts and the
// experts beside them.
#pragma once

#include "heddle/ir/listing.h"

namespace heddle::passes {

/// Rounds the weights of a training listing that its microbatches use more than once. `turns`: input gradients read
/// the turned form.
void round_weights(ir::Listing& listing, int microbatches, bool turns);

/// Lets a listing for another purpose read what the training listing `owner`, number `index`, rounds.
void share_rounded_weights(ir::Listing& listing, const ir::Listing& owner, int index);

}  // namespace heddle::passes
