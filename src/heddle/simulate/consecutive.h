// Training steps that follow each other: where the end of one need not be awaited (ir::Op::trails), a rank begins
// the next while others still end the one before, so that a step in a row is shorter than one alone.
#pragma once

#include "heddle/simulate/simulate.h"

namespace heddle::simulate {

/// The program with each rank's actions of a training step so many times, one step after the other.
ir::StepProgram consecutive(const ir::StepProgram& program, int steps);

/// How long a step takes in a row: from the end of one to that of the next, on the rank that ends last, once the
/// ranks stand apart as they do from then on. InternalError when the program deadlocks.
double steady_step_us(const ir::StepProgram& program, const SimulationInput& input);

}  // namespace heddle::simulate
