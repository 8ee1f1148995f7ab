// Splitting a matrix by columns and joining two: each is the other's backward. With `runs` each of so many equal
// runs of a row's columns is split, or joined, by itself.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef concat;

// clang-format off
const OpDef split{
    .kind = "split",
    .operands = "x", .results = "left right", .attributes = "first runs?",
    .work = ir::Work::activation,  // of gate and up
    .by_row = "x left right",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t first = op.attributes.integer("first"), runs = op.attributes.integer_or("runs", 1);
      rule.require(runs > 0 && rule.size(0, 1) % runs == 0, "columns are not whole runs");
      const int64_t rest = rule.size(0, 1) / runs - first;
      rule.require(first > 0 && rest > 0, "first is outside the columns");
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(runs * first)}),
                         output(rule.dtype(0), {rule.dim(0, 0), fixed(runs * rest)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const int64_t first = op.attributes.integer("first"), runs = op.attributes.integer_or("runs", 1);
      const int64_t columns = writer.listing().value(op.in[0]).shape[1].count;
      Attributes attributes{{"first", first}, {"second", columns / runs - first}};
      if (runs > 1) attributes.set("runs", runs);
      return writer.input_gradient(concat, d_out, {writer.d(op.in[0])}, std::move(attributes));
    },
};

const OpDef concat{
    .kind = "concat",
    .operands = "left? right?", .results = "y", .attributes = "first second runs?",
    .by_row = "left right y",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t runs = op.attributes.integer_or("runs", 1);
      const int64_t first = runs * op.attributes.integer("first"), second = runs * op.attributes.integer("second");
      const size_t present = rule.has(0) ? 0 : 1;
      if (rule.has(0)) rule.shape(0, {rule.dim(present, 0), fixed(first)});
      if (rule.has(1)) rule.shape(1, {rule.dim(present, 0), fixed(second)});
      return std::vector{output(rule.dtype(present), {rule.dim(present, 0), fixed(first + second)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const auto name = [&](size_t i) { return operand(op, i) == none ? "unused" : writer.d(op.in[i]); };
      Attributes attributes{{"first", op.attributes.integer("first")}};
      if (op.attributes.has("runs")) attributes.set("runs", op.attributes.integer("runs"));
      std::vector<ValueId> d_in = writer.input_gradient(split, d_out, {name(0), name(1)}, std::move(attributes));
      d_in.resize(op.in.size());
      return d_in;
    },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> shape_ops() { return {&split, &concat}; }

}  // namespace heddle::ops
