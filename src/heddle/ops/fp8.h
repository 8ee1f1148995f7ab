// Products with operands in eight bits, by those that they stand in for. See fp8.cpp.
#pragma once

#include <vector>

#include "heddle/ir/op.h"

namespace heddle::ops {

/// The definition of a product, or of one of its gradients, with operands in eight bits: its rows `x` are `q` and
/// `scales` there. Null where there is none.
const ir::OpDef* fp8_in_place_of(const ir::OpDef& def);

std::vector<const ir::OpDef*> fp8_ops();

}  // namespace heddle::ops
