// Where a pipeline rank looks back at the step before, if its text does (ir::Phase::check), and what it runs again
// when that has to be taken back.
#pragma once

#include <vector>

#include "heddle/ir/program.h"

namespace heddle::schedule {

/// Puts the check into each rank's actions, of which `bounds` says where one may stand: before its first backward,
/// or earlier where it has received by then what another rank sends after its own check. No message crosses the
/// checks but forwards: what a rank has sent and its neighbour has not yet received is received by that one, and
/// all is given up and run again. Where the update is left out because nothing finite came of the step, this one
/// ends there. Nothing is changed where a text has no check.
void add_checks(ir::StepProgram& program, ir::StepProgram::ActionLists& actions,
                const std::vector<std::vector<size_t>>& bounds, int first_listing);

}  // namespace heddle::schedule
