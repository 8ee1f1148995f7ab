// Joined forms of what the end of a step does to one parameter: one op for many of them, so that a device launches
// it once. The shared operands come first, then those of each parameter behind those of the one before.
#pragma once

#include <vector>

#include "heddle/ir/listing.h"

namespace heddle::ops {

std::vector<const ir::OpDef*> joined_ops();

/// The definition of the joined form, or null where there is none.
const ir::OpDef* joined_form(const ir::OpDef& single);
/// Operands of the joined form that all parameters share: those in front.
size_t shared_operands(const ir::OpDef& joined);
/// The joined form of ops of one kind, each of one parameter with one gradient, which differ in nothing else.
ir::Op join(const std::vector<ir::Op>& parts);
/// The number of parameters of an op of a joined form.
size_t parts_of(const ir::Op& joined);
/// The op that it runs on the i-th parameter, as an op by itself.
ir::Op part_of(const ir::Op& joined, size_t i);

}  // namespace heddle::ops
