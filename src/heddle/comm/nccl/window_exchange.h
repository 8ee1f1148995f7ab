// Exchanges by one kernel that stores into the memory of its peers (NCCL 2.28's windows: memory that is registered
// with a communicator, which every rank of a node's domain of loads and stores maps). Off unless
// HEDDLE_NCCL_WINDOWS=1, as no device has run it.
//
// A rank's window has two boxes for each peer and block of the kernel. A message is cut into chunks; chunk c goes
// through the boxes of block c mod B: the sender waits until one is free, stores the chunk and raises its number at
// the receiver; the receiver waits for that number, moves the chunk to its places and raises the number of free
// boxes at the sender. So no rank knows where its peer's rows go, no host waits, and of a message of any length
// there are never more than two chunks a block under way. A block waits for the same block of its peers only, each
// in the same order of rounds, which is why none waits in a circle; what it does wait for are kernels on other
// devices, as NCCL's own do.
#pragma once

#include <nccl.h>

#include <memory>
#include <span>

#include "heddle/comm/communicator.h"

namespace heddle::comm::nccl {

class WindowExchange {
 public:
  virtual ~WindowExchange() = default;
  /// As Communicator's, but for what a rank hands to itself, which is left out. Returns at once; `sends` and
  /// `receives` may change then.
  virtual void exchange(const void* send, std::span<const Piece> sends, void* receive,
                        std::span<const Piece> receives, void* stream) = 0;
};

/// Whether HEDDLE_NCCL_WINDOWS=1 asks for them. ConfigError where this build or the library has none.
bool windows_asked();

/// Of the communicator, whose ranks all call it together; null where not all of them reach each other's memory.
/// `stop`: a word that the device reads; once it is not zero no kernel waits any longer.
std::unique_ptr<WindowExchange> window_exchange(ncclComm_t comm, int rank, int size, const uint32_t* stop);

}  // namespace heddle::comm::nccl
