// Tells the figures of each step to the program that holds Heddle (base/holder.h), and ends the run where that asks
// for it.
#include "heddle/base/holder.h"
#include "heddle/observe/metrics_log.h"
#include "heddle/session/services/services.h"

namespace heddle::session {

namespace {

class StepListener final : public Service {
 public:
  using Service::Service;

  Wishes wishes() override { return {.stop = stop_}; }

  void after(StepRecord& step) override {
    if (!holder()->step(observe::metrics_line(step.metrics))) stop_ = true;
  }

 private:
  bool stop_ = false;
};

}  // namespace

std::unique_ptr<Service> make_step_listener(RunContext& run) { return std::make_unique<StepListener>(run); }

}  // namespace heddle::session
