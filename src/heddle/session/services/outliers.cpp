// Steps that were left out as outliers: the first of several in a row is reported, all are counted. After
// train.roll_back_after in a row the run goes back to a checkpoint from before them, and on with the data behind.
#include "heddle/train/controllers/outliers.h"

#include <cmath>

#include "heddle/session/run_checkpoint.h"
#include "heddle/session/services/services.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

namespace {

// One line: "step 12: gradient norm 83.1, of at most 45.2: left out".
std::string outlier_note(const train::StepResult& result, const train::StepLimits& limits) {
  std::vector<std::string> why;
  const auto judge = [&](const char* what, double value, double limit) {
    if (!std::isfinite(value)) {
      why.push_back(fmt::format("{} {}", what, value));
    } else if (value > limit) {
      why.push_back(fmt::format("{} {:.4g}, of at most {:.4g}", what, value, limit));
    }
  };
  judge("gradient norm", result.gradient_norm(), limits.norm);
  judge("loss", result.loss(), limits.loss);
  return fmt::format("step {}: {}: left out", result.step, fmt::join(why, "; "));
}

class OutlierService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    const auto& outliers = run_.trainer->controllers().get<train::Outliers>();
    const int64_t in_a_row = outliers.history().in_a_row, most = run_.config.train.roll_back_after;
    if (in_a_row == 1 && run_.leads()) run_.warn(outlier_note(record.result, outliers.judged_by()));
    if (most > 0 && in_a_row > 0 && in_a_row % most == 0) {
      record.plain = false;
      roll_back(fmt::format("step {}: {} left out in a row", record.result.step, in_a_row));
    }
    record.metrics.set(observe::figures::kSkippedSteps, static_cast<double>(outliers.history().skipped));
    record.metrics.set(observe::figures::kRolledBack, static_cast<double>(outliers.history().rolled_back_to));
  }

 private:
  void roll_back(const std::string& why) {
    run_.answer_signals("the way back");
    std::optional<int64_t> to;
    run_.within([&] { run_.patience.anything(); }, [&] { to = return_to_checkpoint(run_.folder, *run_.trainer); });
    if (!run_.leads()) return;
    run_.warn(
        to ? fmt::format("{}: back to the checkpoint of step {}; training goes on with the data after the step",
                         why, *to)
           : fmt::format("{}, and there is no checkpoint from before them", why));
  }
};

}  // namespace

std::unique_ptr<Service> make_outliers(RunContext& run) { return std::make_unique<OutlierService>(run); }

}  // namespace heddle::session
