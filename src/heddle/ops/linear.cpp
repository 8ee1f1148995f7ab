// Linear map y = x wᵀ + bias, with input and weight gradients apart, and the addition of a bias by itself; and a
// factor of all elements. T rows, K in, N out; w is [N, K].
#include "heddle/ops/ops.h"
#include "heddle/ops/product_shapes.h"

namespace heddle::ops {

namespace {

extern const OpDef linear_dgrad, linear_wgrad, add_bias_wgrad, scale;

// clang-format off
const OpDef linear{
    .kind = "linear",
    .operands = "x w bias?", .results = "y", .attributes = "wide?",
    .linear_map = true,
    .product_of_rows = true,
    .packable = "w",
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      return linear_shape(rule, 1, op.attributes.integer_or("wide", 0) ? wide(rule.dtype(0)) : rule.dtype(0));
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], w = op.in[1], bias = operand(op, 2), dy = d_out[0];
      std::vector<ValueId> d_in(op.in.size(), none);
      if (writer.wants_gradient(x)) {
        const auto dtype = std::string(heddle::name_of(writer.listing().value(x).dtype));
        d_in[0] = writer.input_gradient(linear_dgrad, {dy, w}, {writer.d(x)}, {{"dtype", dtype}})[0];
      }
      std::vector<ValueId> weights{w};
      if (bias != none) weights.push_back(bias);
      writer.weight_gradient(linear_wgrad, {x, dy}, weights);
      return d_in;
    },
    .cost = product_cost,
};

const OpDef linear_dgrad{
    .kind = "linear_dgrad",
    .operands = "dy w", .results = "dx", .attributes = "dtype",
    .product_of_rows = true,
    .packable = "w",
    .by_row = "dy dx",
    .infer = [](const Listing& listing, const Op& op) { return linear_dgrad_shape(Rule(listing, op), op); },
    .cost = product_cost,
};

const OpDef linear_wgrad{
    .kind = "linear_wgrad",
    .operands = "x dy", .updates = "acc bias_acc?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(op.in.size() == 2 && (op.updates.size() == 1 || op.updates.size() == 2), "needs x, dy and acc");
      return linear_wgrad_shape(rule, 1);
    }),
    .cost = product_cost,
};

// Fused with the product before it, or with the activation after it (passes/fuse).
const OpDef add_bias{
    .kind = "add_bias",
    .operands = "x bias", .results = "y",
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(1, {rule.dim(0, 1)});
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      writer.weight_gradient(add_bias_wgrad, {d_out[0]}, {op.in[1]});
      return std::vector{d_out[0], none};
    },
};

const OpDef add_bias_wgrad{
    .kind = "add_bias_wgrad",
    .operands = "dy", .updates = "acc",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.updated(0).shape == ir::Shape{rule.dim(0, 1)}, "acc is not [N]");
    }),
};

// Its own backward.
const OpDef scale{
    .kind = "scale",
    .operands = "x", .results = "y", .attributes = "factor",
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule) { return std::vector{rule.like(0)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(scale, {d_out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
};

extern const OpDef scale_by_wgrad;

// y = x·s of a number for each element, chosen by its index. Without an index of one for each row, or one for all,
// which are constants: s then has no gradient. Its own backward.
const OpDef scale_by{
    .kind = "scale_by",
    .operands = "x s index?", .results = "y",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.in(1).shape.size() == 1 && rule.dtype(1) == wide(rule.dtype(0)), "s is no vector of wide numbers");
      if (rule.has(2)) {
        rule.shape(2, rule.in(0).shape);
      } else if (rule.in(1).shape[0] != rule.in(0).shape[0]) {
        rule.shape(1, {fixed(1)});
      }
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], s = op.in[1], index = operand(op, 2);
      std::vector<ValueId> in{d_out[0], s}, d_in(op.in.size(), none);
      if (index != none) {
        in.push_back(index);
        writer.weight_gradient(scale_by_wgrad, {d_out[0], x, index}, {s});
      }
      d_in[0] = writer.input_gradient(scale_by, in, {writer.d(x)})[0];
      return d_in;
    },
};

const OpDef scale_by_wgrad{
    .kind = "scale_by_wgrad",
    .operands = "dy x index", .updates = "acc",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      rule.shape(2, rule.in(0).shape);
      rule.require(rule.updated(0).shape.size() == 1, "acc is no vector");
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> linear_ops() {
  return {&linear, &linear_dgrad, &linear_wgrad, &add_bias, &add_bias_wgrad, &scale, &scale_by, &scale_by_wgrad};
}

}  // namespace heddle::ops
