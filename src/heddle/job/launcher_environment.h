// The environment of every program that a launcher of a job starts, and the folders that it names.
#pragma once

#include <cstdint>
#include <string>

#include "heddle/job/child.h"

namespace heddle::job {

/// `run`: the run's folder. Ranks of `generation`, and probes of its hosts. Open MPI tries shared memory of POSIX's
/// kind as it starts and leaves /dev/shm/open_mpi.* behind where it is killed meanwhile. What the other kind, which
/// it takes anyway, leaves lies in a folder of the generation, which is emptied first.
Environment launcher_environment(const std::string& run, int64_t generation);

/// Removes the folders of a run whose programs have ended.
void remove_session_folders(const std::string& run);

}  // namespace heddle::job
