// Signals ask a run to save or to stop. The run checks for them between steps; during one, a signal is answered
// with what it waits for.
#include "heddle/observe/units.h"
#include "heddle/session/services/services.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

namespace {

class SignalService final : public Service {
 public:
  using Service::Service;

  Wishes wishes() override { return Signals::take(); }

  void before(int64_t step) override {
    run_.answer_signals(step_s_ == 0
                            ? fmt::format("step {}", step)
                            : fmt::format("step {} (a step takes {})", step, observe::duration_text(step_s_)));
  }

  void after(StepRecord& record) override { step_s_ = record.result.seconds; }

 private:
  double step_s_ = 0;  // length of the last step
};

}  // namespace

std::unique_ptr<Service> make_signals(RunContext& run) { return std::make_unique<SignalService>(run); }

}  // namespace heddle::session
