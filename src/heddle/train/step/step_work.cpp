#include "heddle/train/step/step_work.h"

namespace heddle::train {

StepWork step_work(const model::ModelConfig& model, const plan::Plan& plan) {
  plan::Plan one = plan.on_one_rank();
  one.microbatches = 1;
  one.evaluates = one.predicts = false;
  const plan::Lowered lowered = plan::lower(model, one);
  const ir::Listing& listing = lowered.program.listings[0];
  StepWork work;
  for (const ir::Op& op : listing.ops) {
    const double times = ir::once_a_step(op.phase) ? 1 : plan.microbatches * plan.mesh.dp;
    work.flops += times * op.def->cost(listing, op, ir::FixedRows()).flops;
  }
  work.parameters = model::count_parameters(model, lowered.parameters[0], listing);
  return work;
}

}  // namespace heddle::train
