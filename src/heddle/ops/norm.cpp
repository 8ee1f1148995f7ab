// RMSNorm (Zhang and Sennrich, arXiv 1910.07467) and LayerNorm (Ba et al., arXiv 1607.06450), alone and fused with
// the residual addition before them; plain addition; and the accumulation of small sums. T rows, H columns, g the
// gain. A gain of w columns norms each run of w columns by itself, such as the heads of queries: h = H/w norms a
// row. With `offset` rows are multiplied by offset + g (1 + g: Gemma, arXiv 2408.00118).
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef rms_norm_dgrad, layer_norm_dgrad, accumulate;

// Writes dx (with `dres`, a gradient that joins it, added inside) and hands the gain's partial sum to W.
ValueId norm_gradient(GradientWriter& writer, const Op& op, ValueId dy, ValueId x, ValueId g, ValueId rstd,
                      ValueId dres) {
  Attributes attributes;
  if (op.attributes.has("offset")) attributes.set("offset", op.attributes.number("offset"));
  const auto out = writer.input_gradient(rms_norm_dgrad, {dy, x, g, rstd, dres}, {writer.d(x), writer.d(g)},
                                         std::move(attributes));
  writer.weight_gradient(accumulate, {out[1]}, {g});
  return out[0];
}

// The shape of rstd: [T], or [T, h] where a row has h > 1 norms.
ir::Shape norms_of(const Rule& rule, size_t x, size_t g) {
  const int64_t columns = rule.size(x, 1), width = rule.size(g, 0);
  rule.require(width > 0 && columns % width == 0, "columns are not whole runs of the gain's width");
  rule.shape(g, {fixed(width)});
  if (columns == width) return {rule.dim(x, 0)};
  return {rule.dim(x, 0), fixed(columns / width)};
}

// clang-format off
const OpDef rms_norm{
    .kind = "rms_norm",
    .operands = "x g", .results = "y rstd", .attributes = "epsilon offset?",
    .work = ir::Work::norm,
    .by_row = "x y rstd",
    .infer = by_rule([](const Rule& rule) {
      return std::vector{rule.like(0),
                         output(wide(rule.dtype(0)), norms_of(rule, 0, 1), Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return std::vector{norm_gradient(writer, op, d_out[0], op.in[0], op.in[1], op.out[1], none), none};
    },
};

const OpDef add_rms_norm{
    .kind = "add_rms_norm",
    .operands = "a b g", .results = "s y rstd", .attributes = "epsilon offset?",
    .by_row = "a b s y rstd",
    .stands_for = "s = add a b\n"
                  "y rstd = rms_norm s g",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      rule.shape(2, {rule.dim(0, 1)});
      return std::vector{rule.like(0), rule.like(0),
                         output(wide(rule.dtype(0)), {rule.dim(0, 0)}, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      if (d_out[1] == none) return std::vector{d_out[0], d_out[0], none};
      const ValueId ds = norm_gradient(writer, op, d_out[1], op.out[0], op.in[2], op.out[2], d_out[0]);
      return std::vector{ds, ds, none};
    },
};

const OpDef rms_norm_dgrad{
    .kind = "rms_norm_dgrad",
    .operands = "dy x g rstd dres?", .results = "dx dg", .attributes = "offset?",
    .stands_for = "own dg = rms_norm_dgrad dy x g rstd\n"
                  "dx = add dres own",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      rule.shape(3, norms_of(rule, 1, 2));
      if (rule.has(4)) rule.same(4, 1);
      return std::vector{rule.like(1), output(wide(rule.dtype(1)), {rule.dim(2, 0)})};
    }),
};
// clang-format on

// The gradient of a norm with a bias b, whose partial sum goes to W too.
ValueId layer_norm_gradient(GradientWriter& writer, ValueId dy, ValueId x, ValueId g, ValueId b, ValueId mean,
                            ValueId rstd, ValueId dres) {
  const auto out = writer.input_gradient(layer_norm_dgrad, {dy, x, g, mean, rstd, dres},
                                         {writer.d(x), writer.d(g), writer.d(b)});
  writer.weight_gradient(accumulate, {out[1]}, {g});
  writer.weight_gradient(accumulate, {out[2]}, {b});
  return out[0];
}

Value a_number_a_row(const Rule& rule) { return output(wide(rule.dtype(0)), {rule.dim(0, 0)}, Role::metadata); }

// clang-format off
const OpDef layer_norm{
    .kind = "layer_norm",
    .operands = "x g b", .results = "y mean rstd", .attributes = "epsilon",
    .work = ir::Work::norm,
    .by_row = "x y mean rstd",
    .infer = by_rule([](const Rule& rule) {
      for (const size_t vector : {1, 2}) rule.shape(vector, {rule.dim(0, 1)});
      return std::vector{rule.like(0), a_number_a_row(rule), a_number_a_row(rule)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return std::vector{layer_norm_gradient(writer, d_out[0], op.in[0], op.in[1], op.in[2], op.out[1], op.out[2], none),
                         none, none};
    },
};

const OpDef add_layer_norm{
    .kind = "add_layer_norm",
    .operands = "a b g bias", .results = "s y mean rstd", .attributes = "epsilon",
    .by_row = "a b s y mean rstd",
    .stands_for = "s = add a b\n"
                  "y mean rstd = layer_norm s g bias",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      for (const size_t vector : {2, 3}) rule.shape(vector, {rule.dim(0, 1)});
      return std::vector{rule.like(0), rule.like(0), a_number_a_row(rule), a_number_a_row(rule)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      if (d_out[1] == none) return std::vector{d_out[0], d_out[0], none, none};
      const ValueId ds = layer_norm_gradient(writer, d_out[1], op.out[0], op.in[2], op.in[3], op.out[2], op.out[3],
                                             d_out[0]);
      return std::vector{ds, ds, none, none};
    },
};

const OpDef layer_norm_dgrad{
    .kind = "layer_norm_dgrad",
    .operands = "dy x g mean rstd dres?", .results = "dx dg db",
    .stands_for = "own dg db = layer_norm_dgrad dy x g mean rstd\n"
                  "dx = add dres own",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      rule.shape(2, {rule.dim(1, 1)});
      for (const size_t number : {3, 4}) rule.shape(number, {rule.dim(1, 0)});
      if (rule.has(5)) rule.same(5, 1);
      const Value sums = output(wide(rule.dtype(1)), {rule.dim(2, 0)});
      return std::vector{rule.like(1), sums, sums};
    }),
};

const OpDef add{
    .kind = "add",
    .operands = "a b", .results = "y",
    .by_row = "a b y",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter&, const Op&, const std::vector<ValueId>& d_out) {
      return std::vector{d_out[0], d_out[0]};
    },
};

const OpDef accumulate{
    .kind = "accumulate",
    .operands = "p", .updates = "acc",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.in(0).shape == rule.updated(0).shape, "operand and accumulator differ in shape");
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> norm_ops() {
  return {&rms_norm,         &add_rms_norm, &rms_norm_dgrad, &layer_norm, &add_layer_norm,
          &layer_norm_dgrad, &add,          &accumulate};
}

}  // namespace heddle::ops
