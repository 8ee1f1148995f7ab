// Communication among the ranks of one mesh group. Calls are made by the stream that runs the op, in the order that
// the program states, and return when the caller's buffers may be reused.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace heddle::comm {

/// A run of bytes to or from a peer. Between two ranks, pieces match in the order in which they are listed.
struct Piece {
  int peer = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// All ranks of the group: every piece of `send` lands in the matching piece of the peer's `receive`.
  virtual void exchange(const void* send, std::span<const Piece> sends, void* receive,
                        std::span<const Piece> receives) = 0;
  /// Point to point, matched in order between a pair of ranks. A send never waits for its receive (what is under way
  /// is buffered): then a wait on storage that a send has used can't close a circle of ranks.
  virtual void send(const void* data, int64_t bytes, int peer) = 0;
  virtual void receive(void* data, int64_t bytes, int peer) = 0;

  /// Makes every pending and later call of every rank of the group throw SystemError with this reason.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace heddle::comm
