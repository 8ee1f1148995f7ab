// Compares the first steps, but the very first, with the duration that was predicted when the plan was chosen.
#include "heddle/base/statistics.h"
#include "heddle/observe/report.h"
#include "heddle/observe/units.h"
#include "heddle/session/run_logs.h"
#include "heddle/session/services/services.h"
#include "heddle/train/step/result.h"

namespace heddle::session {

namespace {

constexpr size_t kPredictedSteps = 5;

class PredictionService final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    if (record.compute_share > 0) compute_share_ = record.compute_share;
    if (++steps_ < 2 || first_steps_s_.size() == kPredictedSteps) return;
    first_steps_s_.push_back(record.result.seconds);
    if (first_steps_s_.size() == kPredictedSteps && run_.leads()) tell(median(first_steps_s_));
  }

  void report(observe::ReportData& data) override {
    if (first_steps_s_.empty()) return;
    const double predicted_s = run_.place.predicted_s, took_s = median(first_steps_s_);
    data.figures.set(observe::figures::kStepPredicted, predicted_s);
    data.figures.set(observe::figures::kFirstSteps, took_s);
    data.environment.emplace_back("step predicted", observe::duration_text(predicted_s));
    data.environment.emplace_back("prediction off by", fmt::format("{:+.1f} %", 100 * (predicted_s / took_s - 1)));
  }

 private:
  void tell(double took_s) {
    const double predicted_s = run_.place.predicted_s;
    run_.terminal.line(fmt::format("a step: {} predicted, {} measured: the prediction was {:+.1f} % off",
                                   observe::duration_text(predicted_s), observe::duration_text(took_s),
                                   100 * (predicted_s / took_s - 1)));
    if (!run_.place.learn) return;
    const FirstSteps seen{took_s, compute_share_ * took_s};
    run_.logs->attempt("profile", [&] {
      for (const std::string& line : run_.place.learn(seen)) run_.terminal.line(line);
    });
  }

  int64_t steps_ = 0;
  std::vector<double> first_steps_s_;
  double compute_share_ = 0;  // share of the traced step
};

}  // namespace

std::unique_ptr<Service> make_prediction(RunContext& run) { return std::make_unique<PredictionService>(run); }

}  // namespace heddle::session
