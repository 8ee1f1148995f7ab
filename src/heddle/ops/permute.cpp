// Token rows to expert order and back. T tokens, k experts a token, R = T·k rows, H hidden. Sums over a token's
// experts are formed in the tree of device/merge_tree.h, over expert ids. weigh_dgrad is for rows that came from
// other ranks.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef permute_dgrad, unpermute_dgrad, zero_experts_dgrad;

// clang-format off
const OpDef permute{
    .kind = "permute",
    .operands = "x row_of token_of experts", .results = "p",
    .work = ir::Work::permute,
    .infer = by_rule([](const Rule& rule) {
      rule.shape(3, rule.in(1).shape);
      return std::vector{output(rule.dtype(0), {rule.dim(2, 0), rule.dim(0, 1)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId dx =
          writer.input_gradient(permute_dgrad, {d_out[0], op.in[1], op.in[3]}, {writer.d(op.in[0])})[0];
      return std::vector{dx, none, none, none};
    },
};

const OpDef permute_dgrad{
    .kind = "permute_dgrad",
    .operands = "dp row_of experts", .results = "dx",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(2, rule.in(1).shape);
      return std::vector{output(rule.dtype(0), {rule.dim(1, 0), rule.dim(0, 1)})};
    }),
};

const OpDef unpermute{
    .kind = "unpermute",
    .operands = "y gates row_of experts residual?", .results = "c",
    .stands_for = "sum = unpermute y gates row_of experts\n"
                  "c = add sum residual",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(1, rule.in(2).shape);
      rule.shape(3, rule.in(2).shape);
      const ir::Shape shape{rule.dim(2, 0), rule.dim(0, 1)};
      if (rule.has(4)) rule.shape(4, shape);
      return std::vector{output(rule.dtype(0), shape)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const auto out = writer.input_gradient(unpermute_dgrad, {d_out[0], op.in[0], op.in[1], op.in[2]},
                                             {writer.d(op.in[0]), writer.d(op.in[1])});
      std::vector<ValueId> d_in{out[0], out[1], none, none};
      if (op.in.size() > 4) d_in.push_back(d_out[0]);
      return d_in;
    },
};

const OpDef unpermute_dgrad{
    .kind = "unpermute_dgrad",
    .operands = "dc y gates row_of", .results = "dy dgates",
    .infer = by_rule([](const Rule& rule) { return std::vector{rule.like(1), rule.like(2)}; }),
};

// The rows that arrive may be counted by another value than those that were there: the counts are the same.
const OpDef weigh_dgrad{
    .kind = "weigh_dgrad",
    .operands = "dr e gates", .results = "de dgates",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.dim(0, 1) == rule.dim(1, 1), "dr and e differ in columns");
      return std::vector{rule.like(1), rule.like(2)};
    }),
};

// Experts from `first` on are without computation: of each that a token chose it gets its own row back, weighed. No
// row of theirs is moved.
const OpDef zero_experts{
    .kind = "zero_experts",
    .operands = "x gates experts", .results = "y", .attributes = "first",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(1, rule.in(2).shape);
      rule.require(rule.dim(0, 0) == rule.dim(2, 0), "x and experts differ in rows");
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const auto d = writer.input_gradient(zero_experts_dgrad, {d_out[0], op.in[0], op.in[1], op.in[2]},
                                           {writer.d(op.in[0]), writer.d(op.in[1])}, op.attributes);
      return std::vector{d[0], d[1], none};
    },
};

const OpDef zero_experts_dgrad{
    .kind = "zero_experts_dgrad",
    .operands = "dy x gates experts", .results = "dx dgates", .attributes = "first",
    .infer = by_rule([](const Rule& rule) { return std::vector{rule.like(1), rule.like(2)}; }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> permute_ops() {
  return {&permute, &permute_dgrad, &unpermute, &unpermute_dgrad, &weigh_dgrad, &zero_experts, &zero_experts_dgrad};
}

}  // namespace heddle::ops
