// The ways that a step can go: which of a rank's actions are run, for everything that its decisions can come to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "heddle/ir/program.h"

namespace heddle::ir {

/// What each decision comes to, by the name of what is counted; the same on all ranks.
using Decided = std::map<std::string, int64_t>;

/// A number on each side of every limit that the actions ask for, of all classes of ranks. InternalError where
/// ranks might decide differently.
std::vector<Decided> decisions_of(const StepProgram& program, const StepProgram::ActionLists& lists);

/// The actions that are then run, to the one that stops the step.
std::vector<Action> taken(const StepProgram& program, const std::vector<Action>& actions, const Decided& decided);

}  // namespace heddle::ir
