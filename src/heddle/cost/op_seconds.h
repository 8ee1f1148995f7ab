// Times of ops of a program on an accelerator that is only described: products by their shape, attention by its
// width, all else by the bytes that it moves.
#pragma once

#include "heddle/cost/accelerator.h"
#include "heddle/ir/listing.h"

namespace heddle::cost {

/// Seconds of an op that computes.
double op_s(const Accelerator& device, Precision precision, const ir::Listing& listing, const ir::Op& op,
            const ir::RowCounts& rows);

}  // namespace heddle::cost
