// Communication among the ranks of one mesh group. Calls are made by the stream that runs the op, in the order that
// the program states, and return when the caller's buffers may be reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace heddle::comm {

/// A run of bytes to or from a peer. Between two ranks, pieces match in the order in which they are listed.
struct Piece {
  int peer = 0;        // rank within the group; the caller itself too
  int64_t offset = 0;  // from the base pointer; may be negative
  int64_t bytes = 0;
};

/// The bytes and messages that a rank has sent, by where they went. What a rank hands to itself is not counted.
struct Traffic {
  int64_t within_node_bytes = 0;
  int64_t across_nodes_bytes = 0;
  int64_t messages = 0;
};

/// An exchange whose pieces are made and used one by one. `ready(i)` is called once for each of `sends`, in their
/// order, before any of its bytes is read; `arrived(i)` once for each of `receives`, in any order, when its bytes
/// are there. Both run on the calling thread, and may throw; either may be null. A place to receive into may be
/// written from the beginning of the call on.
struct ByPieces {
  const void* send = nullptr;
  std::span<const Piece> sends;
  void* receive = nullptr;
  std::span<const Piece> receives;
  std::function<void(size_t i)> ready, arrived;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The node (a number from 0, the same for all ranks of a world) on which a rank of the group runs.
  virtual int node_of(int rank) const = 0;

  /// All ranks of the group call it together: every piece of `send` lands in the matching piece of the peer's
  /// `receive`. Empty pieces need no partner. The lists of both sides agree in bytes; InternalError when they
  /// don't.
  virtual void exchange(const void* send, std::span<const Piece> sends, void* receive,
                        std::span<const Piece> receives) = 0;
  /// Point to point, matched in order between a pair of ranks. A send never waits for its receive (what is under
  /// way is buffered): then a wait on storage that a send has used can't close a circle of ranks.
  virtual void send(const void* data, int64_t bytes, int peer) = 0;
  virtual void receive(void* data, int64_t bytes, int peer) = 0;

  /// Sets the stream of the device on which the calls that follow run, where memory is a device's. Then they return
  /// at once, and what was said of returning holds for what comes later on that stream.
  virtual void run_on(void*) {}

  /// Sent by this rank through this communicator since it was made.
  virtual Traffic traffic() const = 0;

  /// Makes every pending and later call of every rank of the group throw SystemError with this reason.
  virtual void abort(const std::string& reason) = 0;

  /// An exchange, each piece as soon as it may go: what can't do better gets all ready, exchanges, and has all
  /// arrived.
  virtual void exchange_by_pieces(const ByPieces& all) {
    for (size_t i = 0; all.ready && i < all.sends.size(); ++i) all.ready(i);
    exchange(all.send, all.sends, all.receive, all.receives);
    for (size_t i = 0; all.arrived && i < all.receives.size(); ++i) all.arrived(i);
  }
};

/// One value of each rank for each rank: theirs for this one, in order of rank.
template <class T>
std::vector<T> exchange_values(Communicator& group, const std::vector<T>& mine) {
  std::vector<T> theirs(mine.size());
  std::vector<Piece> pieces;
  constexpr auto bytes = static_cast<int64_t>(sizeof(T));
  for (int r = 0; r < group.size(); ++r) pieces.push_back({r, r * bytes, bytes});
  group.exchange(mine.data(), pieces, theirs.data(), pieces);
  return theirs;
}

/// Counts a message to `peer`; one to oneself or of no bytes is none.
inline void count_sent(Traffic& traffic, const Communicator& from, int peer, int64_t bytes) {
  if (peer == from.rank() || bytes == 0) return;
  const bool near = from.node_of(peer) == from.node_of(from.rank());
  (near ? traffic.within_node_bytes : traffic.across_nodes_bytes) += bytes;
  ++traffic.messages;
}

}  // namespace heddle::comm
