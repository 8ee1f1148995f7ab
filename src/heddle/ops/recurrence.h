// Checks and exchanges of ops on the rows of whole sequences, which ranks of cp may share: a recurrence, and the
// convolution before it.
#pragma once

#include "heddle/ops/rule.h"

namespace heddle::ops {

/// The rows of operand `x` are whole sequences; `starts` are those of attention.
void check_sequences(const Rule& rule, const Op& op, size_t x);

/// The exchange over the ranks that share sequences, each of which has two pieces of each (collective.cpp).
Attributes exchange_of_pieces(const Listing& listing, const Op& op, ValueId x);

}  // namespace heddle::ops
