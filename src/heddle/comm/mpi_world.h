// Ranks as processes that MPI started. The MPI library is reached through this header only; a build without it is
// complete, and says so when asked for a world.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "heddle/comm/world.h"

namespace heddle::comm {

struct MpiOptions {
  /// A call that waits longer for a peer whose process is alive ends every rank.
  double timeout_seconds = 300;
  /// A process that has answered nothing for so long counts as dead, and every rank ends. 0: never.
  double silence_seconds = 10;
  /// From the failure of the world to the forced end of a process that has not ended by itself.
  double grace_seconds = 10;
  /// Long messages travel in parts of this size; every rank has the same.
  int64_t part_bytes = 256 << 10;
  /// Ranks of a node exchange by pieces through memory that they share, so many neighbours with each other. 0: none
  /// do; every rank has the same.
  int window_ranks = std::numeric_limits<int>::max();
  /// Called once, by another thread than the caller's, when the world fails, with the reason and the rank that is
  /// at fault (-1: unknown). It is called also in a process whose threads compute and would not see it for a while.
  /// May print; must not throw or call the world.
  std::function<void(const std::string& reason, int accused)> report;
};

/// True if this build can make an MPI world.
bool mpi_available();

/// True if a launcher (mpirun, srun, another that speaks PMI or PMIx) has started this process as one rank of a
/// job. Reads the environment; does not touch MPI.
bool launched_by_mpi();

/// The world of the job. Once a process: MPI can't be started again. Its end waits for all ranks' ends, unless it
/// has failed or an exception is under way: then all ranks end with an error. ConfigError when this build has no
/// MPI, SystemError when MPI says no.
std::unique_ptr<World> mpi_world(const MpiOptions& options = {});

/// The number of processes that the launcher says it has started; 0 when it does not say.
int launched_ranks();
/// The number of this one among them; 0 when it does not say.
int launched_rank();

}  // namespace heddle::comm
