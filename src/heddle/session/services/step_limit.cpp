// Sets how long ranks wait for each other in a step, by what steps have taken (ranks/patience.h).
#include <set>

#include "heddle/base/clock.h"
#include "heddle/comm/world.h"
#include "heddle/session/services/services.h"
#include "heddle/train/trainer_checkpoint.h"

namespace heddle::session {

namespace {

int nodes_of(const comm::World* world) {
  std::set<int> nodes;
  for (int r = 0; world != nullptr && r < world->size(); ++r) nodes.insert(world->node_of(r));
  return static_cast<int>(nodes.size());
}

class StepLimit final : public Service {
 public:
  using Service::Service;

  void start() override {
    run_.patience.of_state(train::checkpoint_bytes(*run_.trainer), nodes_of(run_.place.world));
  }

  void before(int64_t) override {
    batch_ = run_.next_batch();
    run_.patience.step(batch_);
    began_s_ = now_s();
  }

  void after(StepRecord& record) override {
    if (record.plain || is_first_) run_.patience.stepped(now_s() - began_s_, batch_);
    is_first_ = false;
  }

 private:
  int64_t batch_ = 0;
  double began_s_ = 0;
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<Service> make_step_limit(RunContext& run) { return std::make_unique<StepLimit>(run); }

}  // namespace heddle::session
