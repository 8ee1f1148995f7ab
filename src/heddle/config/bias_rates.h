// Rates of the balancing biases that a step's program reads, for each way of moving them.
#pragma once

#include "heddle/config/bias_rate.h"
#include "heddle/config/falling_bias_rate.h"
#include "heddle/config/learning_rate.h"
#include "heddle/model/model_config.h"

namespace heddle::config {

/// The part of the way that a step goes, by quantiles. All of it: less takes several steps more to arrive, and the
/// bounds that experts move for each other by going at once are found anew in the next step.
constexpr double kQuantileRate = 1;

inline double bias_rate_at(const model::ModelConfig& model, const LearningRate& learning_rate,
                           const RunLength& length, const RunProgress& done) {
  const double left = learning_rate.left(length, done);
  if (model.bias_update_rate) return *model.bias_update_rate;
  switch (model.bias_balance) {
    case model::BiasBalance::falling: return FallingBiasRate{learning_rate.warmup}.at(length, done, left);
    case model::BiasBalance::quantile: return kQuantileRate * left;
    default: return BiasRate{}.at(length, done, left);
  }
}

}  // namespace heddle::config
