// The roll call before the first collective of MPI's own, which nothing ends where two ranks can't reach each
// other. Every rank hears from those 1, 2, 4, … before it and is heard by those after it, in letters that may be
// abandoned.
#pragma once

namespace heddle::comm::mpi {

/// Collective over MPI_COMM_WORLD. PeerError naming a rank that has not been heard of in `patience_s` (of the time
/// in which this process was awake).
void roll_call(int rank, int size, double patience_s);

}  // namespace heddle::comm::mpi
