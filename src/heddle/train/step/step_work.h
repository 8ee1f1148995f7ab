// The work of a training step, and the number of parameters that it trains.
#pragma once

#include "heddle/model/model_config.h"
#include "heddle/model/parameter_count.h"
#include "heddle/plan/plan.h"

namespace heddle::train {

struct StepWork {
  double flops = 0;  // matrix products, by the op definitions, as one rank alone would do the step
  model::ParameterCount parameters;
};

StepWork step_work(const model::ModelConfig& model, const plan::Plan& plan);

}  // namespace heddle::train
