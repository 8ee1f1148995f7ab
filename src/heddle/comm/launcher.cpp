// The variables that launchers leave in the environment of the processes they start.
#include <cstdlib>

#include "heddle/comm/mpi_world.h"

namespace heddle::comm {

namespace {

int number(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : 0;
}

}  // namespace

int launched_ranks() {
  // Open MPI's mpirun; MPICH's and Intel's; srun. SLURM_NTASKS alone says nothing: a batch script has it too.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const int ranks = number(name); ranks > 0) return ranks;
  }
  return 0;
}

int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (std::getenv(name) != nullptr) return number(name);
  }
  return 0;
}

bool launched_by_mpi() {
  // Any job of PMIx; for Slurm, steps of one task are programs that were only sent to another host.
  if (std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK") || std::getenv("PMI_RANK")) return true;
  return std::getenv("SLURM_PROCID") && number("SLURM_STEP_NUM_TASKS") > 1;
}

}  // namespace heddle::comm
