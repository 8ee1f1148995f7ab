#include "heddle/comm/threads/only_rank.h"

#include <algorithm>

#include "heddle/comm/device_world.h"
#include "heddle/comm/threads/thread_world.h"

namespace heddle::comm {

namespace {

class OnlyRank final : public World {
 public:
  explicit OnlyRank(bool shares_memory) : board_(1), world_(board_.world(0)) {
    if (!shares_memory) device_world_ = device_world(*world_);
  }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int node_of(int rank) const override { return world_->node_of(rank); }
  const std::string& host_of(int rank) const override { return world_->host_of(rank); }
  std::unique_ptr<Communicator> communicator(const std::vector<int>& ranks, const std::string& name) override {
    return (device_world_ ? *device_world_ : *world_).communicator(ranks, name);
  }
  void abort(const std::string& reason, bool input) override {
    (device_world_ ? *device_world_ : *world_).abort(reason, input);
  }

 private:
  ThreadWorlds board_;
  std::unique_ptr<World> world_, device_world_;
};

}  // namespace

bool communicates(const ir::StepProgram& program) {
  return std::ranges::any_of(program.listings, [](const ir::Listing& listing) {
    return std::ranges::any_of(listing.ops, [](const ir::Op& op) { return !op.group.empty(); });
  });
}

std::unique_ptr<World> only_rank(bool shares_memory) { return std::make_unique<OnlyRank>(shares_memory); }

}  // namespace heddle::comm
