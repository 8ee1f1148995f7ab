// A device world whose long messages between ranks of this process go over the GPUs' copy engines. No kernel is
// launched for them, so that no multiprocessor is held while they wait or move. Short messages, letters, and
// messages to other processes go through the world within.
//
// No host waits for another. Each side of a message says what it has: the sender his pieces, the receiver their
// places, both an event of their stream. The second to come puts the copies on a stream of the receiver that does
// nothing else, behind both events. Behind the copies a number is written that both streams wait for, in order of
// the pair's messages. These waits are the driver's (cuStreamWaitValue32) and hold no unit either.
//
// A pair has a stream of its own, so that its copies stand behind nothing but what the pair did before. On one for
// all sources two hosts that run ahead of a third would put their next messages in front of his last one, and all
// three wait for ever.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "heddle/comm/engine/engine_world.h"
#include "heddle/comm/world.h"

namespace heddle::comm::nccl {

/// The state that the ranks of the process share.
class PeerHub {
 public:
  ~PeerHub();
  struct Event;
  /// One side of a message. Runs have `from` (the sender's) or `to`.
  struct Side {
    std::vector<CopyRun> runs;
    std::shared_ptr<Event> ready;
    int device = 0;
    cudaStream_t copies = nullptr;  // the receiver's of the pair
  };
  struct Pair;
  /// The pair that carries the messages from one rank to another of a group.
  Pair& pair(const std::string& group, int from, int to);
  /// An event on a stream of the device that is current.
  std::shared_ptr<Event> recorded(cudaStream_t on);
  /// Puts the message on its way when the other side is there; what is to be waited for on the own stream.
  struct Ticket {
    CUdeviceptr flag = 0;
    uint32_t number = 0;
  };
  Ticket post(Pair& pair, bool sends, Side side);
  static void wait(cudaStream_t stream, const Ticket& ticket);
  /// Ends all waits, of now and later.
  void release();

 private:
  void match(Pair& pair);
  std::mutex mutex_;
  std::map<std::tuple<std::string, int, int>, std::unique_ptr<Pair>> pairs_;
  std::map<int, std::vector<cudaEvent_t>> free_events_;  // by device: an event is recorded on its own alone
  std::mutex events_mutex_;
  bool released_ = false;
};

class PeerWorld : public World {
 public:
  PeerWorld(std::unique_ptr<World> usual, std::shared_ptr<PeerHub> hub, int64_t least_bytes, EngineCounts& counts);
  ~PeerWorld() override;
  int rank() const override { return usual_->rank(); }
  int size() const override { return usual_->size(); }
  int node_of(int rank) const override { return usual_->node_of(rank); }
  const std::string& host_of(int rank) const override { return usual_->host_of(rank); }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override;
  void abort(const std::string& reason, bool input = false) override;
  void set_patience(double seconds) override { usual_->set_patience(seconds); }

 private:
  friend class PeerCommunicator;
  cudaStream_t new_stream();
  std::unique_ptr<World> usual_;
  std::shared_ptr<PeerHub> hub_;
  int64_t least_bytes_;
  EngineCounts& counts_;
  int device_ = 0;
  std::vector<cudaStream_t> copies_;  // of all pairs in which this rank receives
};

}  // namespace heddle::comm::nccl
