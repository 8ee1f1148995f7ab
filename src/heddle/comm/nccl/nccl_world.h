// Ranks that talk through NCCL. Communicators enqueue on the stream they were told (run_on) and return at once.
//
// NCCL reduces nothing: the owner forms sums in rank order (docs/ops.md), so every collective is sends and receives
// of bytes in one group call. A send has to be buffered (see communicator.h), and NCCL's is not. What is sent alone
// is copied first, and leaves on a stream of its own, on a communicator that carries nothing else.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include "heddle/comm/nccl/library.h"
#include "heddle/comm/world.h"

namespace heddle::comm::nccl {

class NcclWorld;

/// A communicator of NCCL with its end: aborted when the world fails, destroyed otherwise.
class Handle {
 public:
  /// Rank `rank` of `size`; blocks until all have called.
  Handle(NcclWorld& world, const ncclUniqueId& id, int size, int rank);
  ~Handle();
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ncclComm_t get() const { return comm_; }

 private:
  friend class NcclWorld;
  NcclWorld& world_;
  ncclComm_t comm_ = nullptr;
};

class NcclWorld : public World {
 public:
  explicit NcclWorld(World& control);
  ~NcclWorld() override;

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  int node_of(int rank) const override { return control_.node_of(rank); }
  const std::string& host_of(int rank) const override { return control_.host_of(rank); }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override;
  void abort(const std::string& reason, bool input = false) override;
  void set_patience(double seconds) override { control_.set_patience(seconds); }

  /// Throws SystemError with the reason once the world has failed.
  void check_alive() const;

 private:
  friend class Handle;
  void watch();

  World& control_;
  mutable std::mutex mutex_;
  std::list<Handle*> handles_;
  std::string reason_;
  std::atomic<bool> failed_{false}, ending_{false};
  std::thread watcher_;
};

}  // namespace heddle::comm::nccl
