#include "heddle/train/controllers/rates.h"

#include <array>
#include <cmath>

#include "heddle/config/bias_rate.h"
#include "heddle/config/falling_bias_rate.h"
#include "heddle/train/controllers/outliers.h"
#include "heddle/train/step/result.h"
#include "heddle/train/trainer_options.h"

namespace heddle::train {

namespace {

/// The part of the way that a step goes, by quantiles. All of it: less takes several steps more to arrive, and the
/// bounds that experts move for each other by going at once are found anew in the next step.
constexpr double kQuantileRate = 1;

double bias_rate_at(const TrainerOptions& options, const config::RunProgress& done) {
  const double left = options.learning_rate.left(options.length, done);
  if (options.model.bias_update_rate) return *options.model.bias_update_rate;
  switch (options.model.bias_balance) {
    case model::BiasBalance::falling:
      return config::FallingBiasRate{options.learning_rate.warmup}.at(options.length, done, left);
    case model::BiasBalance::quantile: return kQuantileRate * left;
    default: return config::BiasRate{}.at(options.length, done, left);
  }
}

}  // namespace

Rates::Rates(const ControllerContext& context) : options_(context.options), others_(context.others) {}

void Rates::before(const NextStep& step, device::Inputs& inputs) {
  const passes::Optimizer& update = options_.plan.update;
  learning_rate_ = options_.learning_rate.at(options_.length, step.done);
  bias_rate_ = bias_rate_at(options_, step.done);
  // Moments know nothing of the steps left out.
  const auto t = static_cast<double>(step.number() - others_.get<Outliers>().history().left_out);
  inputs.set("hyper",
             std::array{learning_rate_, 1 - std::pow(update.beta1, t), 1 - std::pow(update.beta2, t), bias_rate_});
}

void Rates::after(const Readings& step, observe::Figures& figures) {
  figures.set(observe::figures::kLearningRate, learning_rate_);
  const bool has_biases = options_.model.topk_bias && !step.result.loads().empty();
  if (has_biases) figures.set(observe::figures::kBiasUpdateRate, bias_rate_);
}

}  // namespace heddle::train
