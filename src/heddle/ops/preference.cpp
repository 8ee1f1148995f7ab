// Learning from pairs of answers, of which one is preferred. Sources: DPO (Rafailov et al., arXiv 2305.18290,
// equation 7); smoothing as Mitchell, "A note on DPO with noisy preferences". A microbatch is B sequences, B/2
// pairs: the preferred answer, then the other. With Σ for the summed token losses of a sequence (−log p of its
// answer),
//   reward = β·(Σ of the reference − Σ)    margin m = reward of the preferred − reward of the other
//   loss = −(1 − ε)·log σ(m) − ε·log σ(−m)
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef sequence_sums_dgrad, preference_loss_dgrad;

// clang-format off
const OpDef sequence_sums{
    .kind = "sequence_sums",
    .operands = "losses", .results = "sums", .attributes = "sequence",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t sequences =
          rule.quotient(rule.size(0, 0), op.attributes.integer("sequence"), "rows are not whole sequences");
      return std::vector{output(Dtype::f64, {fixed(sequences)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(sequence_sums_dgrad, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
};

const OpDef sequence_sums_dgrad{
    .kind = "sequence_sums_dgrad",
    .operands = "dsums", .results = "dlosses", .attributes = "sequence",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      return std::vector{output(Dtype::f64, {fixed(rule.size(0, 0) * op.attributes.integer("sequence"))})};
    }),
};

void check_pairs(const Rule& rule) {
  rule.require(rule.size(0, 0) % 2 == 0, "sequences are not whole pairs");
  rule.same(1, 0);
  if (rule.has(3)) rule.same(3, 0);
}

// If ranks share a sequence, `sums` are this rank's part of `whole`, and `ranks` of them count the same pairs. Each
// then adds its part of what the results sum over pairs.
const OpDef preference_loss{
    .kind = "preference_loss",
    .operands = "sums references scales whole?", .results = "loss chosen rejected margin accuracy",
    .attributes = "beta smoothing ranks scale_index",
    .is_loss = true,
    .infer = by_rule([](const Rule& rule) {
      check_pairs(rule);
      return std::vector<Value>(5, output(Dtype::f64, {fixed(1)}, Role::metadata));
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = writer.input_gradient(preference_loss_dgrad, op.in, {writer.d(op.in[0])}, op.attributes)[0];
      return d_in;
    },
};

const OpDef preference_loss_dgrad{
    .kind = "preference_loss_dgrad",
    .operands = "sums references scales whole?", .results = "dsums", .attributes = "beta smoothing ranks scale_index",
    .infer = by_rule([](const Rule& rule) {
      check_pairs(rule);
      return std::vector{rule.like(0)};
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> preference_ops() {
  return {&sequence_sums, &sequence_sums_dgrad, &preference_loss, &preference_loss_dgrad};
}

}  // namespace heddle::ops
