// The router's auxiliary losses: sequence-wise balance (DeepSeek-V3, eqs. 17–20) and z-loss (Zoph et al.,
// arXiv 2202.08906, eq. 5). T tokens, E experts; scales holds 1 ÷ the denominator of each loss over the batch.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef sequence_aux_loss_dgrad, z_loss_dgrad;

// f counts whole sequences, and a token has no more experts than there are.
void check_balance(const Rule& rule, const Op& op) {
  if (!op.attributes.has("sequence")) return;
  rule.require(rule.size(0, 0) % op.attributes.integer("sequence") == 0, "rows are not whole sequences");
  rule.require(op.attributes.integer("top_k") <= rule.size(0, 1), "top_k exceeds the experts");
}

std::vector<Value> loss_output(const Stage& stage, const Op& op) {
  const Rule rule(stage, op);
  rule.counts(2);
  check_balance(rule, op);
  return {output(Dtype::f64, {fixed(1)}, Role::metadata)};
}

std::vector<Value> gradient_output(const Stage& stage, const Op& op) {
  const Rule rule(stage, op);
  rule.counts(2);
  check_balance(rule, op);
  return {rule.like(0)};
}

// The forward op carries scales as its second operand, which only the gradient reads.
const OpDef sequence_aux_loss{
    .kind = "sequence_aux_loss",
    .is_loss = true,
    .infer = loss_output,
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      const ValueId ds = writer.input_gradient(sequence_aux_loss_dgrad, op.in, {writer.d(op.in[0])}, op.attributes)[0];
      return std::vector{ds, none};
    },
    .cost = operand_cost,
};

const OpDef sequence_aux_loss_dgrad{
    .kind = "sequence_aux_loss_dgrad", .infer = gradient_output, .cost = operand_cost};

const OpDef z_loss{
    .kind = "z_loss",
    .is_loss = true,
    .infer = loss_output,
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      const ValueId dlogits = writer.input_gradient(z_loss_dgrad, op.in, {writer.d(op.in[0])}, op.attributes)[0];
      return std::vector{dlogits, none};
    },
    .cost = operand_cost,
};

const OpDef z_loss_dgrad{.kind = "z_loss_dgrad", .infer = gradient_output, .cost = operand_cost};

}  // namespace

std::vector<const OpDef*> auxiliary_loss_ops() {
  return {&sequence_aux_loss, &sequence_aux_loss_dgrad, &z_loss, &z_loss_dgrad};
}

}  // namespace heddle::ops
