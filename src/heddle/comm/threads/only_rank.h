// The world of a rank that is alone, for programs whose ops have a group even so: experts some of which are without
// computation send rows to nobody but themselves.
#pragma once

#include <memory>

#include "heddle/comm/world.h"
#include "heddle/ir/program.h"

namespace heddle::comm {

/// True if an op of the program has a group, whose communicator it wants.
bool communicates(const ir::StepProgram& program);

/// `shares_memory`: the host reads the device's memory. Else its device has been chosen.
std::unique_ptr<World> only_rank(bool shares_memory);

}  // namespace heddle::comm
