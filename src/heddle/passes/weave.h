// Puts the ops of blocks into an order in which communication runs beside computation. It weaves the forward of one
// microbatch and the backward of another, or one block alone (the exchanges of a layer beside its own shared expert
// and weight gradients). Nothing but dependencies and durations decides; the ops stay as they are.
//
// This is list scheduling over the rank's in-order streams. Of the ops whose operands are on their way, the one
// that can start first is next. Of those that can start at once, it is the one with the longest way to the end of
// its block. A host stall counts as starting when it ends, so that work is queued behind which the host may sleep.
// Weight gradients fill what is left, but none waits longer than until its block's input gradients are two layers
// further, so that what they keep alive stays bounded.
#pragma once

#include <functional>
#include <vector>

#include "heddle/ir/program.h"

namespace heddle::passes {

/// Microseconds that an op of a listing lasts. All ranks that run the listing must get the same, or their
/// collectives would come in different orders.
using Durations = std::function<double(const ir::Listing& listing, const ir::Op& op)>;

/// Rearranges a block as far as its Mixing allows: all of its slots together, or, without `pairs`, each by itself.
/// Where nothing communicates it stays as it is. In order, a slot begins where the one before it has ended, but for
/// weight gradients, which go wherever there is room.
void weave(const ir::StepProgram& program, ir::Block& block, const Durations& duration_us, bool pairs);

/// Microseconds that a block of one slot lasts by itself, as weaving estimates: woven, or as it is written.
double lasts_us(const ir::StepProgram& program, const ir::Block& block, const Durations& duration_us, bool woven);

}  // namespace heddle::passes
