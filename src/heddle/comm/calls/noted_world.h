// A world like another, whose every call stands in a rank's page (call_page.h) while it lasts.
#pragma once

#include "heddle/comm/calls/call_log.h"
#include "heddle/comm/world.h"

namespace heddle::comm {

class NotedWorld : public World {
 public:
  /// Both outlive it.
  NotedWorld(World& world, CallLog& log) : world_(world), log_(log) {}
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  int node_of(int rank) const override { return world_.node_of(rank); }
  const std::string& host_of(int rank) const override { return world_.host_of(rank); }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override;
  void abort(const std::string& reason, bool input) override { world_.abort(reason, input); }
  void set_patience(double seconds) override {
    log_.set_patience(seconds);
    world_.set_patience(seconds);
  }
  void move_on(int core) override { world_.move_on(core); }

 private:
  World& world_;
  CallLog& log_;
};

}  // namespace heddle::comm
