// What every op that turns rows by their places asks of its operands.
#pragma once

#include "heddle/ops/rule.h"

namespace heddle::ops {

/// Rows of `heads` heads as operand 0, of each of which `rope_dim` columns turn by a table of `sequence` places as
/// operand 1.
void check_turned_rows(const Rule& rule, const Attributes& attributes);

}  // namespace heddle::ops
