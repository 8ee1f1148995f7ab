// The learning rate of each step, with its warm-up and decay, and the rate of the balancing biases. It remembers
// nothing: rates follow from what has been done of the run.
#pragma once

#include "heddle/train/controllers/controllers.h"

namespace heddle::train {

class Rates : public Controller {
 public:
  explicit Rates(const ControllerContext& context);
  void before(const NextStep& step, device::Inputs& inputs) override;
  void after(const Readings& step, observe::Figures& figures) override;

 private:
  const TrainerOptions& options_;
  const Controllers& others_;
  double learning_rate_ = 0, bias_rate_ = 0;  // rates of the step that runs
};

}  // namespace heddle::train
