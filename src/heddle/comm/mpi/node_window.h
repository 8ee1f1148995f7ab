// Memory that the ranks of a node share, for exchanges by pieces. Each rank has an inbox with a ring of bytes for
// each other rank of its node in the group. The maker of a piece writes it there himself, and its reader copies it
// out when he looks. MPI and its thread have no part in that.
//
// An inbox is memory without a name (memfd), which peers open by the process that made it. So nothing is left
// behind however a rank ends. Where the system forbids that, the peer is not reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/comm/communicator.h"

namespace heddle::comm::mpi {

class NodeWindow {
 public:
  /// All ranks of the group call it together. `near`: ranks of the group that this one wants to reach, not itself;
  /// who is wanted wants this one, too. `ring_bytes`: as many as a peer should be ahead of this rank at most; rings
  /// have 64 KiB to 32 MiB. SystemError where there is no memory.
  NodeWindow(Communicator& group, const std::vector<int>& near, int64_t ring_bytes);
  ~NodeWindow();
  NodeWindow(const NodeWindow&) = delete;
  NodeWindow& operator=(const NodeWindow&) = delete;

  /// True if bytes to and from this rank of the group go through the window; both sides say the same.
  bool reaches(int peer) const { return peers_[peer].reached; }
  /// Adds to what the peer can read, in order, as much as there is room for; how many bytes that were.
  int64_t write(int peer, const std::byte* from, int64_t bytes);
  /// Takes what the peer has written, in order, as much as is there; how many bytes that were.
  int64_t read(int peer, std::byte* to, int64_t bytes);

  /// Changes whenever a peer has written to this rank, or read what it has written, and by wake().
  uint32_t rung() const;
  /// Sleeps until rung() is no longer `since`, 50 ms at most.
  void sleep(uint32_t since);
  /// Wakes this rank's own sleeper, from another thread.
  void wake();

 private:
  struct WakeCounter;
  struct Counts;
  class Inbox;
  /// A ring: its counts lie in the inbox, what they are held against does not.
  struct Ring {
    Counts* counts = nullptr;
    std::byte* data = nullptr;
    int64_t bytes = 0;
  };
  struct Peer {
    bool reached = false;
    Ring in, out;  // of the own inbox; of theirs
    WakeCounter* wake_counter = nullptr;
  };

  std::unique_ptr<Inbox> own_;
  std::vector<std::unique_ptr<Inbox>> theirs_;
  std::vector<Peer> peers_;  // by rank of the group
};

}  // namespace heddle::comm::mpi
