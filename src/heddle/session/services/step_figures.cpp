// The figures that every step has: loss, rates, speed, and the statistics that the model's table gives a name in
// the log.
#include <numeric>

#include "heddle/base/clock.h"
#include "heddle/session/services/services.h"
#include "heddle/train/trainer.h"

namespace heddle::session {

namespace {

namespace figures = observe::figures;

class StepFigures final : public Service {
 public:
  using Service::Service;

  void after(StepRecord& record) override {
    const train::StepResult& result = record.result;
    observe::StepMetrics& metrics = record.metrics;
    metrics.step = result.step;
    metrics.wall_time_s = wall_time_s();
    metrics.set(figures::kLoss, result.loss());
    if (run_.config.model.sequence_aux_loss_alpha > 0)
      metrics.set(figures::kAuxiliaryLoss, result.sequence_aux_loss());
    if (const std::vector<double> depths = result.depth_losses(); !depths.empty())
      metrics.set(figures::kDepthLoss,
                  std::accumulate(depths.begin(), depths.end(), 0.0) / static_cast<double>(depths.size()));
    for (const observe::Figures::Number& figure : result.figures.numbers())
      metrics.set(*figure.row, figure.index, figure.value);
    metrics.set(figures::kGradientNorm, result.gradient_norm());
    if (run_.config.plan.update.qk_clip > 0) metrics.set(figures::kMaxLogit, result.max_logit);
    metrics.set(figures::kStepSeconds, result.seconds);
    metrics.set(figures::kTrainedSeconds, run_.trainer->done().seconds);
    metrics.set(figures::kTokens, static_cast<double>(run_.config.tokens_after(result.step)));
    metrics.set(figures::kTokensPerSecond, static_cast<double>(result.tokens) / result.seconds);
    metrics.set(figures::kFlopsPerSecond, result.flops / result.seconds);
    for (const train::Reading& reading : result.statistics) {
      const std::string_view metric = reading.kind->metric;
      if (!metric.empty()) metrics.set(observe::figure_of(metric), result.total(*reading.kind));
    }
  }
};

}  // namespace

std::unique_ptr<Service> make_step_figures(RunContext& run) { return std::make_unique<StepFigures>(run); }

}  // namespace heddle::session
