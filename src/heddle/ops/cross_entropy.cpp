// Cross-entropy over the vocabulary, from logits or fused with the output projection so that T×V is never held
// (Wijmans et al., arXiv 2411.09009). T tokens, V vocabulary, H hidden; labels below 0 are masked; scales holds
// 1 ÷ the batch's unmasked tokens.
#include <algorithm>

#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef cross_entropy_dgrad, linear_cross_entropy_dgrad, linear_cross_entropy_wgrad;

std::vector<Value> loss_and_lse(const Rule& rule) {
  return {output(Dtype::f64, {fixed(1)}, Role::metadata),
          output(wide(rule.dtype(0)), {rule.dim(0, 0)}, Role::metadata)};
}

Cost products(const Listing& listing, const Op& op, const RowCounts& rows, double count) {
  Cost cost = operand_cost(listing, op, rows);
  cost.flops = count * 2.0 * rows_of(listing, op.in[0], rows) * static_cast<double>(listing.elements(op.in[1], rows));
  return cost;
}

// Operands: logits, labels, scales. Only the gradient reads scales.
const OpDef cross_entropy{
    .kind = "cross_entropy",
    .operands = "logits labels scales", .results = "loss lse", .attributes = "scale_index?",
    .is_loss = true,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.shape(1, {rule.dim(0, 0)});
      return loss_and_lse(rule);
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      const ValueId dlogits =
          writer.input_gradient(cross_entropy_dgrad, {op.in[0], op.in[1], op.out[1], op.in[2]},
                                {writer.d(op.in[0])}, op.attributes)[0];
      return std::vector{dlogits, none, none};
    },
    .cost = operand_cost,
};

const OpDef cross_entropy_dgrad{
    .kind = "cross_entropy_dgrad",
    .operands = "logits labels lse scales", .results = "dlogits", .attributes = "scale_index",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      return std::vector{rule.like(0)};
    },
    .cost = operand_cost,
};

// Operands: x, w, labels, scales. Only the gradients read scales.
const OpDef linear_cross_entropy{
    .kind = "linear_cross_entropy",
    .operands = "x w labels scales", .results = "loss lse", .attributes = "scale_index?",
    .is_loss = true,
    .packable = "w",
    .stands_for = "logits = linear x w\n"
                  "loss lse = cross_entropy logits labels scales",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.require(rule.size(0, 1) == rule.size(1, 1), "x and w differ in their last dim");
      rule.shape(2, {rule.dim(0, 0)});
      return loss_and_lse(rule);
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      const std::vector<ValueId> in{op.in[0], op.in[1], op.in[2], op.out[1], op.in[3]};
      const ValueId dx =
          writer.input_gradient(linear_cross_entropy_dgrad, in, {writer.d(op.in[0])}, op.attributes)[0];
      writer.weight_gradient(linear_cross_entropy_wgrad, in, {op.in[1]}, op.attributes);
      return std::vector{dx, none, none, none};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 1); },
};

const OpDef linear_cross_entropy_dgrad{
    .kind = "linear_cross_entropy_dgrad",
    .operands = "x w labels lse scales", .results = "dx", .attributes = "scale_index",
    .packable = "w",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      return std::vector{rule.like(0)};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 2); },
};

const OpDef linear_cross_entropy_wgrad{
    .kind = "linear_cross_entropy_wgrad",
    .operands = "x w labels lse scales", .updates = "acc", .attributes = "scale_index",
    .packable = "w",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      return std::vector<Value>{};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 2); },
};

// The loss where tp cuts the vocabulary. Each rank has the loss over its own part, with labels of other parts masked
// (labels_part), and the lse of each row over it; the rest is this op's: lse over all parts (lse_parts, one after the
// other), and Σ of lse − lse_part over the rows whose label is this rank's. Operands: logits and none, or x and w;
// labels (V where another part has the label), scales, lse_parts, labels_part, lse_part.
const OpDef sharded_loss{
    .kind = "sharded_loss",
    .operands = "x w? labels scales lse_parts labels_part lse_part", .results = "loss lse",
    .attributes = "scale_index",
    .is_loss = true,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.shape(2, {rule.dim(0, 0)});
      rule.shape(5, {rule.dim(0, 0)});
      rule.shape(6, {rule.dim(0, 0)});
      rule.require(rule.size(4, 0) % std::max<int64_t>(1, rule.size(0, 0)) == 0, "lse_parts is not whole parts");
      return loss_and_lse(rule);
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      std::vector<ValueId> d_in(op.in.size(), none);
      if (op.in[1] == none) {
        d_in[0] = writer.input_gradient(cross_entropy_dgrad, {op.in[0], op.in[2], op.out[1], op.in[3]},
                                        {writer.d(op.in[0])}, op.attributes)[0];
      } else {
        const std::vector<ValueId> in{op.in[0], op.in[1], op.in[2], op.out[1], op.in[3]};
        d_in[0] = writer.input_gradient(linear_cross_entropy_dgrad, in, {writer.d(op.in[0])}, op.attributes)[0];
        writer.weight_gradient(linear_cross_entropy_wgrad, in, {op.in[1]}, op.attributes);
      }
      return d_in;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = static_cast<double>(listing.bytes(op.in[4], rows))};
    },
};

// A part's own loss and lse; their gradient is written by sharded_loss.
const OpDef cross_entropy_part{
    .kind = "cross_entropy_part",
    .operands = "logits labels scales", .results = "loss lse", .attributes = "scale_index?",
    .infer = cross_entropy.infer, .cost = operand_cost};
const OpDef linear_cross_entropy_part{
    .kind = "linear_cross_entropy_part",
    .operands = "x w labels scales", .results = "loss lse", .attributes = "scale_index?",
    .infer = linear_cross_entropy.infer, .cost = linear_cross_entropy.cost};

const OpDef linear_cross_entropy_train{
    .kind = "linear_cross_entropy_train",
    .operands = "x w labels scales", .results = "loss dx", .updates = "acc", .attributes = "scale_index",
    .packable = "w",
    .stands_for = "loss lse = linear_cross_entropy x w labels scales\n"
                  "dx = linear_cross_entropy_dgrad x w labels lse scales\n"
                  "linear_cross_entropy_wgrad x w labels lse scales -> acc",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.shape(2, {rule.dim(0, 0)});
      return std::vector{output(Dtype::f64, {fixed(1)}, Role::metadata), rule.like(0)};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 3); },
};

}  // namespace

std::vector<const OpDef*> cross_entropy_ops() {
  return {&cross_entropy,
          &cross_entropy_dgrad,
          &linear_cross_entropy,
          &linear_cross_entropy_dgrad,
          &linear_cross_entropy_wgrad,
          &linear_cross_entropy_train,
          &cross_entropy_part,
          &linear_cross_entropy_part,
          &sharded_loss};
}

}  // namespace heddle::ops
