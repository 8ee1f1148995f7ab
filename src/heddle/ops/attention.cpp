// Attention per sequence and head, causal or not, with grouped key/value heads (FlashAttention-2, arXiv 2307.08691).
// T = B·S rows, h query heads of d elements, hk key/value heads, dv value elements.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef attention_dgrad;

// Multiply-adds of one T × S triangle (or square) of scores, for one product of width 1 over all heads, doubled.
double score_flops(const Stage& stage, const Op& op, ValueId q, const RowCounts& rows) {
  const double keys = static_cast<double>(op.attributes.integer("sequence"));
  const double visible = op.attributes.integer("causal") ? (keys + 1) / 2 : keys;
  return 2.0 * rows_of(stage, q, rows) * visible * static_cast<double>(op.attributes.integer("heads"));
}

const OpDef attention{
    .kind = "attention",
    .infer = [](const Stage& stage, const Op& op) {
      const Rule rule(stage, op);
      rule.counts(3);
      const Attributes& a = op.attributes;
      const Dim rows = rule.dim(0, 0);
      rule.require(rows.is_static() && rows.count % a.integer("sequence") == 0, "rows are not whole sequences");
      rule.require(a.integer("heads") % a.integer("kv_heads") == 0, "heads is not a multiple of kv_heads");
      rule.shape(0, {rows, fixed(a.integer("heads") * a.integer("head_dim"))});
      rule.shape(1, {rows, fixed(a.integer("kv_heads") * a.integer("head_dim"))});
      rule.shape(2, {rows, fixed(a.integer("kv_heads") * a.integer("value_dim"))});
      return std::vector{output(rule.dtype(0), {rows, fixed(a.integer("heads") * a.integer("value_dim"))}),
                         output(wide(rule.dtype(0)), {rows, fixed(a.integer("heads"))}, Role::metadata)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(attention_dgrad,
                                   {d_out[0], op.in[0], op.in[1], op.in[2], op.out[0], op.out[1]},
                                   {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, op.attributes);
    },
    .cost = [](const Stage& stage, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(stage, op, rows);
      const double widths = static_cast<double>(op.attributes.integer("head_dim") + op.attributes.integer("value_dim"));
      cost.flops = score_flops(stage, op, op.in[0], rows) * widths;
      return cost;
    },
};

const OpDef attention_dgrad{
    .kind = "attention_dgrad",
    .infer = [](const Stage& stage, const Op& op) {
      const Rule rule(stage, op);
      rule.counts(6);
      return std::vector{rule.like(1), rule.like(2),
                         rule.like(3)};
    },
    // q kᵀ again, do vᵀ, pᵀ do, ds k, dsᵀ q: three products of the head's width and two of the value's.
    .cost = [](const Stage& stage, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(stage, op, rows);
      const double widths = 3.0 * static_cast<double>(op.attributes.integer("head_dim")) +
                            2.0 * static_cast<double>(op.attributes.integer("value_dim"));
      cost.flops = score_flops(stage, op, op.in[1], rows) * widths;
      return cost;
    },
};

}  // namespace

std::vector<const OpDef*> attention_ops() { return {&attention, &attention_dgrad}; }

}  // namespace heddle::ops
