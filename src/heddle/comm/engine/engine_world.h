// A world like another in which the copy engine, and no thread that computes, moves what ranks of a host send each
// other (docs/adr/0027). A rank shows its peers where its bytes lie, in a letter of a few words. The receiver's
// worker copies them to their place. What is shorter than `least_bytes` between two ranks in one call goes in the
// letter itself. What goes to other hosts goes as the other world moves it. Both sides of a message know its bytes,
// so that they choose alike without a word.
//
// Letters to a rank of the same process (`send`) are copied by the worker twice: out of their place before `send`
// returns, into the other's when it is received. To other processes they go as the other world moves them.
//
// Nobody returns from an exchange before his peers have read what he showed. Where a call fails, the worker writes
// nothing of it any more, and nobody begins to read what was shown: memory may go.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "heddle/comm/engine/copy_worker.h"
#include "heddle/comm/engine/reach.h"
#include "heddle/comm/world.h"

namespace heddle::comm {

/// Messages (all that a rank sends another in one call) and their bytes, by the way they went. What a rank hands
/// itself is not counted.
struct EngineTally {
  int64_t messages = 0, bytes = 0;              // by the engine
  int64_t short_messages = 0, short_bytes = 0;  // in letters, for they were short
  int64_t far_messages = 0, far_bytes = 0;      // out of reach: to other hosts, letters to processes
};

/// By streams at the same time.
class EngineCounts {
 public:
  struct Count {
    std::atomic<int64_t> messages{0}, bytes{0};
    void add(int64_t sent) {
      messages.fetch_add(1, std::memory_order_relaxed);
      bytes.fetch_add(sent, std::memory_order_relaxed);
    }
  };
  Count moved, shorter, farther;
  EngineTally tally() const {
    return {moved.messages, moved.bytes, shorter.messages, shorter.bytes, farther.messages, farther.bytes};
  }
};

class EngineWorld : public World {
 public:
  /// All ranks make one together, with the same number of bytes. `world` outlives it.
  EngineWorld(World& world, std::shared_ptr<CopyWorker> worker, int64_t least_bytes, Reach reach);

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int node_of(int rank) const override { return world_.node_of(rank); }
  const std::string& host_of(int rank) const override { return world_.host_of(rank); }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override;
  void abort(const std::string& reason, bool input) override { world_.abort(reason, input); }
  void set_patience(double seconds) override { world_.set_patience(seconds); }
  void move_on(int core) override { world_.move_on(core); }

  /// The tally of this rank, over all its communicators so far.
  EngineTally tally() const { return counts_.tally(); }

 private:
  friend class EngineCommunicator;
  World& world_;
  std::shared_ptr<CopyWorker> worker_;
  int64_t least_bytes_;
  Reach reach_;
  EngineCounts counts_;
};

}  // namespace heddle::comm
