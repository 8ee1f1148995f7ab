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
  const int64_t sequences =
      rule.quotient(rule.size(0, 0), op.attributes.integer("sequence"), "rows are not whole sequences");
  if (rule.has(2)) rule.shape(2, {fixed(sequences), rule.dim(0, 1)});
  rule.require(op.attributes.integer("top_k") <= rule.size(0, 1), "top_k exceeds the experts");
}

std::vector<Value> loss_output(const Listing& listing, const Op& op) {
  const Rule rule(listing, op);
  check_balance(rule, op);
  return {output(Dtype::f64, {fixed(1)}, Role::metadata)};
}

std::vector<Value> gradient_output(const Listing& listing, const Op& op) {
  const Rule rule(listing, op);
  check_balance(rule, op);
  return {rule.like(0)};
}

// clang-format off
// The number of times that each expert is among the top k of raw scores, for each of B sequences, counted over this
// rank's rows. Where ranks share a sequence their sums are the third operand of the loss.
const OpDef sequence_load{
    .kind = "sequence_load",
    .operands = "s", .results = "load", .attributes = "top_k sequence",
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_balance(rule, op);
      return std::vector{output(Dtype::f64,
                                {fixed(rule.size(0, 0) / op.attributes.integer("sequence")), rule.dim(0, 1)},
                                Role::metadata)};
    }),
};

// The forward op carries scales as its second operand, which only the gradient reads. With a third operand, `whole` is
// the length of a sequence of which this rank holds `sequence` rows.
const OpDef sequence_aux_loss{
    .kind = "sequence_aux_loss",
    .operands = "s scales load?", .results = "loss", .attributes = "top_k sequence alpha scale_index whole?",
    .is_loss = true,
    .infer = loss_output,
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = writer.input_gradient(sequence_aux_loss_dgrad, op.in, {writer.d(op.in[0])}, op.attributes)[0];
      return d_in;
    },
};

const OpDef sequence_aux_loss_dgrad{
    .kind = "sequence_aux_loss_dgrad",
    .operands = "s scales load?", .results = "ds", .attributes = "top_k sequence alpha scale_index whole?",
    .infer = gradient_output};

const OpDef z_loss{
    .kind = "z_loss",
    .operands = "logits scales", .results = "loss", .attributes = "weight scale_index",
    .is_loss = true,
    .infer = loss_output,
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      const ValueId dlogits = writer.input_gradient(z_loss_dgrad, op.in, {writer.d(op.in[0])}, op.attributes)[0];
      return std::vector{dlogits, none};
    },
};

const OpDef z_loss_dgrad{
    .kind = "z_loss_dgrad",
    .operands = "logits scales", .results = "dlogits", .attributes = "weight scale_index",
    .infer = gradient_output};

}  // namespace
// clang-format on

std::vector<const OpDef*> auxiliary_loss_ops() {
  return {&sequence_load, &sequence_aux_loss, &sequence_aux_loss_dgrad, &z_loss, &z_loss_dgrad};
}

}  // namespace heddle::ops
