// The ranks of one run where they are the processes that a launcher has started, and with whom each shares what.
#pragma once

#include <functional>

#include "heddle/comm/world.h"
#include "heddle/planner/machine.h"

namespace heddle::session {

/// Calls `body` with this process' rank of the launcher's job and returns the exit status. A failure is thrown on
/// rank 0 alone (or printed there, where it is another rank's); the others return silently.
int run_under_mpi(const std::function<int(comm::World&)>& body);

/// The ranks with which a rank shares memory and cores: those of its machine, and those of them that may run on the
/// same cores. All ranks call it together; null: it is alone.
train::Sharing sharing_of(comm::World* world);

/// Returns the places of the processes of a launcher's job. All ranks call it together. `profiled_cores`: the cores
/// in the machine's profile; ranks that were bound to fewer still share the memory of one machine.
planner::JobPlaces places_of(comm::World& world, int profiled_cores);

}  // namespace heddle::session
