// Times the ops of steps: those of train.op_times_steps, as many as a file in the run's folder asks for, and some
// after a rank was found slow. The rank watch takes the times and tells them.
#include "heddle/base/clock.h"
#include "heddle/session/ranks/rank_watch.h"
#include "heddle/session/services/services.h"
#include "heddle/session/slow/wanted_op_times.h"
#include "heddle/session/traced/run_trace.h"

namespace heddle::session {

namespace {

constexpr double kOpTimesCheck_s = 0.5;

class OpTimesService final : public Service {
 public:
  using Service::Service;

  Wishes wishes() override {
    Wishes wishes;
    if (!run_.leads() || now_s() - checked_s_ < kOpTimesCheck_s) return wishes;
    checked_s_ = now_s();
    wishes.op_times = take_wanted_steps(run_.folder);
    return wishes;
  }

  void grant(const Wishes& wished) override {
    if (wished.op_times > 0 && !wished.stop) run_.ranks->time_ops(wished.op_times);
  }

  void before(int64_t step) override {
    timed_ = !is_traced(run_.config.train, run_.summary.first_step, step) && run_.ranks->times_ops(step);
    if (timed_) run_.ranks->before_step();
  }

  void after(StepRecord&) override {
    if (timed_) run_.ranks->after_step();
  }

 private:
  double checked_s_ = 0;
  bool timed_ = false;
};

}  // namespace

std::unique_ptr<Service> make_op_times(RunContext& run) { return std::make_unique<OpTimesService>(run); }

}  // namespace heddle::session
