// The rounds of an exchange of experts' rows for which the host makes room, as its ops' attributes have them
// (ops/experts/exchange.cpp).
#pragma once

#include "heddle/ir/attributes.h"

namespace heddle::ir {

/// The rows from each rank to each for which an op's round has room; 0 where the host waits for the counts.
inline int64_t room_of_round(const Attributes& exchange) {
  return exchange.has("round") ? exchange.integer("rest") : exchange.integer_or("room", 0);
}

}  // namespace heddle::ir
