// An exchange by pieces among processes. A piece goes through memory where the peer is on this node and reached so.
// Else it is a letter of its own, sent when it is ready, with all receives posted at the beginning.
#pragma once

#include <functional>

#include "heddle/comm/communicator.h"
#include "heddle/comm/mpi/node_window.h"
#include "heddle/comm/mpi/progress.h"

namespace heddle::comm::mpi {

/// `rank`: the caller's in the channel's group. `sent(peer, bytes)` is called for each piece that goes.
void exchange_by_pieces(Progress& progress, Channel& channel, int rank, NodeWindow& window, const ByPieces& all,
                        const std::function<void(int peer, int64_t bytes)>& sent);

}  // namespace heddle::comm::mpi
