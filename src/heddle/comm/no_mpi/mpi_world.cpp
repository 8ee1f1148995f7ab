// Stands in for comm/mpi in a build without MPI.
#include "heddle/comm/mpi_world.h"

#include "heddle/base/error.h"

namespace heddle::comm {

bool mpi_available() { return false; }

std::unique_ptr<World> mpi_world(const MpiOptions&) {
  config_error(
      "this heddle was built without MPI; install libopenmpi-dev and build again, or run ranks as threads");
}

}  // namespace heddle::comm
