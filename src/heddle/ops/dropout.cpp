// Dropout (Srivastava et al., 2014), alone and fused with the residual addition behind it. T rows, H columns.
//
// An element is kept where its random word is at least rate·2³², and divided by 1 − rate then. The word is a pure
// function of the run's seed, the step, the site (the place in the model), the token's number and the column
// (kernels/dropout_words.h). The token's number is that in the whole batch. So it is the same on every layout of
// ranks, and made again where the backward wants it.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef dropout;

void check_drawn(const Rule& rule, const Op& op, size_t tokens) {
  rule.require(rule.dtype(tokens) == Dtype::i32 && rule.dtype(tokens + 1) == Dtype::i32, "counters are not i32");
  rule.shape(tokens, {rule.dim(0, 0)});
  rule.shape(tokens + 1, {fixed(3)});
  const double rate = op.attributes.number("rate");
  rule.require(rate >= 0 && rate < 1, "rate is not in [0, 1)");
}

// clang-format off
// Its own backward.
const OpDef dropout{
    .kind = "dropout",
    .operands = "x tokens key", .results = "y", .attributes = "rate site",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_drawn(rule, op, 1);
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const auto dx = writer.input_gradient(dropout, {d_out[0], op.in[1], op.in[2]}, {writer.d(op.in[0])}, op.attributes);
      return std::vector{dx[0], none, none};
    },
};

const OpDef dropout_add{
    .kind = "dropout_add",
    .operands = "x residual tokens key bias?", .results = "y", .attributes = "rate site",
    .stands_for = "dropped = dropout x tokens key\n"
                  "y = add residual dropped",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      check_drawn(rule, op, 2);
      if (rule.has(4)) rule.shape(4, {rule.dim(0, 1)});
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId bias = operand(op, 4);
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = writer.input_gradient(dropout, {d_out[0], op.in[2], op.in[3]}, {writer.d(op.in[0])}, op.attributes)[0];
      d_in[1] = d_out[0];
      if (bias != none) writer.weight_gradient(find("add_bias_wgrad"), {d_in[0]}, {bias});
      return d_in;
    },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> dropout_ops() { return {&dropout, &dropout_add}; }

}  // namespace heddle::ops
