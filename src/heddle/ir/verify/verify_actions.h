// The check that the ranks of a program may run their actions. Every op of a purpose runs as often as it must and
// in the order that its operands ask for. Every message sent is received, in one order on both sides.
#pragma once

#include "heddle/ir/program.h"

namespace heddle::ir {

/// InternalError with the block, the op and the microbatch.
void verify_actions(const StepProgram& program, const StepProgram::ActionLists& lists, int microbatches);

}  // namespace heddle::ir
