// Cross-entropy over the vocabulary, from logits or fused with the output projection so that T×V is never held
// (Wijmans et al., arXiv 2411.09009). T tokens, V vocabulary, H hidden. Labels below 0 are masked. Weights say how
// much each of the others counts, 1 where there are none. The operand `scales` holds 1 ÷ the weights of the batch's
// unmasked tokens.
//
// With z_weight ζ the squares of lse are a loss too (z-loss: Chowdhery et al., arXiv 2204.02311, section 5). The
// loss is Σ w·(lse − logits[label]) + ζ·Σ w·lse², of which `loss` and `z` are the two sums, and
//   dlogits = scale·w·((1 + 2ζ·lse)·softmax − onehot)
#include <algorithm>

#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef cross_entropy_dgrad, linear_cross_entropy_dgrad, linear_cross_entropy_wgrad;

void check_weights(const Rule& rule) {
  if (!rule.has("weights")) return;
  rule.shape(rule.place("weights"), {rule.dim(0, 0)});
  rule.require(rule.dtype(rule.place("weights")) == Dtype::f64, "weights are f64");
}

Value one_sum() { return output(Dtype::f64, {fixed(1)}, Role::metadata); }

std::vector<Value> loss_and_lse(const Rule& rule, const Op& op) {
  check_weights(rule);
  std::vector<Value> out{one_sum(), output(wide(rule.dtype(0)), {rule.dim(0, 0)}, Role::metadata)};
  if (op.attributes.has("z_weight")) out.push_back(one_sum());
  return out;
}

// The loss of each row apart, which is differentiated as any value is.
std::vector<Value> losses_and_lse(const Rule& rule) {
  return {output(Dtype::f64, {rule.dim(0, 0)}), output(wide(rule.dtype(0)), {rule.dim(0, 0)}, Role::metadata)};
}

// The gradient of the logits, of a loss whose factors are `scales` and whose rows count by `weights`.
ValueId logits_gradient(GradientWriter& writer, const Op& op, ValueId labels, ValueId scales, ValueId weights) {
  return writer.input_gradient(cross_entropy_dgrad, trimmed({op.in[0], labels, op.result("lse"), scales, weights}),
                               {writer.d(op.in[0])}, op.attributes)[0];
}

// Gradients of the head's operands: that of x, and into the accumulator that of w.
ValueId head_gradients(GradientWriter& writer, const Op& op, ValueId labels, ValueId scales, ValueId weights) {
  const std::vector<ValueId> in = trimmed({op.in[0], op.in[1], labels, op.result("lse"), scales, weights});
  const ValueId dx = writer.input_gradient(linear_cross_entropy_dgrad, in, {writer.d(op.in[0])}, op.attributes)[0];
  writer.weight_gradient(linear_cross_entropy_wgrad, in, {op.in[1]}, op.attributes);
  return dx;
}

Cost products(const Listing& listing, const Op& op, const RowCounts& rows, double count) {
  Cost cost = operand_cost(listing, op, rows);
  cost.flops =
      count * 2.0 * rows_of(listing, op.in[0], rows) * static_cast<double>(listing.elements(op.in[1], rows));
  return cost;
}

// clang-format off
// Operands: logits, labels, scales, weights. Only the gradient reads scales.
const OpDef cross_entropy{
    .kind = "cross_entropy",
    .operands = "logits labels scales weights?", .results = "loss lse z?", .attributes = "scale_index? z_weight?",
    .is_loss = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.shape(1, {rule.dim(0, 0)});
      return loss_and_lse(rule, op);
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = logits_gradient(writer, op, op.in[1], op.in[2], operand(op, 3));
      return d_in;
    },
};

// Without scales each row counts by its weight alone.
const OpDef cross_entropy_dgrad{
    .kind = "cross_entropy_dgrad",
    .operands = "logits labels lse scales? weights?", .results = "dlogits", .attributes = "scale_index? z_weight?",
    .infer = by_rule([](const Rule& rule) {
      check_weights(rule);
      return std::vector{rule.like(0)};
    }),
};

// Operands: x, w, labels, scales, weights. Only the gradients read scales.
const OpDef linear_cross_entropy{
    .kind = "linear_cross_entropy",
    .operands = "x w labels scales weights?", .results = "loss lse z?", .attributes = "scale_index? z_weight?",
    .is_loss = true,
    .packable = "w",
    .stands_for = "logits = linear x w\n"
                  "loss lse z = cross_entropy logits labels scales weights",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(rule.size(0, 1) == rule.size(1, 1), "x and w differ in their last dim");
      rule.shape(2, {rule.dim(0, 0)});
      return loss_and_lse(rule, op);
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = head_gradients(writer, op, op.in[2], op.in[3], operand(op, 4));
      return d_in;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 1); },
};

const OpDef linear_cross_entropy_dgrad{
    .kind = "linear_cross_entropy_dgrad",
    .operands = "x w labels lse scales? weights?", .results = "dx", .attributes = "scale_index? z_weight?",
    .packable = "w",
    .infer = by_rule([](const Rule& rule) {
      check_weights(rule);
      return std::vector{rule.like(0)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 2); },
};

const OpDef linear_cross_entropy_wgrad{
    .kind = "linear_cross_entropy_wgrad",
    .operands = "x w labels lse scales? weights?", .updates = "acc", .attributes = "scale_index? z_weight?",
    .packable = "w",
    .infer = by_rule([](const Rule& rule) {
      check_weights(rule);
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 2); },
};

// The loss where tp cuts the vocabulary. Each rank has the loss over its own part, with labels of other parts masked
// (labels_part), and the lse of each row over it. This op makes the rest: lse over all parts (lse_parts, one after the
// other), and Σ of lse − lse_part over the rows whose label is this rank's. Operands: logits and none, or x and w;
// labels (V where another part has the label), scales, lse_parts, labels_part, lse_part. It sums lse² over the rows
// whose label is this rank's.
const OpDef sharded_loss{
    .kind = "sharded_loss",
    .operands = "x w? labels scales lse_parts labels_part lse_part weights?", .results = "loss lse z?",
    .attributes = "scale_index z_weight?",
    .is_loss = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.shape(2, {rule.dim(0, 0)});
      rule.shape(5, {rule.dim(0, 0)});
      rule.shape(6, {rule.dim(0, 0)});
      rule.require(rule.size(4, 0) % std::max<int64_t>(1, rule.size(0, 0)) == 0, "lse_parts is not whole parts");
      return loss_and_lse(rule, op);
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = (op.in[1] == none ? logits_gradient : head_gradients)(writer, op, op.in[2], op.in[3], operand(op, 7));
      return d_in;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = static_cast<double>(listing.bytes(op.in[4], rows))};
    },
};

// A part's own loss and lse; their gradient is written by sharded_loss.
const OpDef cross_entropy_part{
    .kind = "cross_entropy_part",
    .operands = "logits labels scales weights?", .results = "loss lse", .attributes = "scale_index?",
    .infer = cross_entropy.infer};
const OpDef linear_cross_entropy_part{
    .kind = "linear_cross_entropy_part",
    .operands = "x w labels scales weights?", .results = "loss lse", .attributes = "scale_index?",
    .infer = linear_cross_entropy.infer, .cost = linear_cross_entropy.cost};

const OpDef linear_cross_entropy_train{
    .kind = "linear_cross_entropy_train",
    .operands = "x w labels scales weights?", .results = "loss dx z?", .updates = "acc",
    .attributes = "scale_index z_weight?",
    .packable = "w",
    .stands_for = "loss lse z = linear_cross_entropy x w labels scales weights\n"
                  "dx = linear_cross_entropy_dgrad x w labels lse scales weights\n"
                  "linear_cross_entropy_wgrad x w labels lse scales weights -> acc",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.shape(2, {rule.dim(0, 0)});
      check_weights(rule);
      std::vector<Value> out{one_sum(), rule.like(0)};
      if (op.attributes.has("z_weight")) out.push_back(one_sum());
      return out;
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 3); },
};

// The loss of each token, 0 where it is masked: what losses over whole sequences are made of. Its gradient is that of a
// cross-entropy whose weights are the gradient of the losses.
const OpDef token_losses{
    .kind = "token_losses",
    .operands = "logits labels", .results = "losses lse",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(1, {rule.dim(0, 0)});
      return losses_and_lse(rule);
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> d_in(op.in.size(), none);
      if (d_out[0] != none) d_in[0] = logits_gradient(writer, op, op.in[1], none, d_out[0]);
      return d_in;
    },
};

const OpDef linear_token_losses{
    .kind = "linear_token_losses",
    .operands = "x w labels", .results = "losses lse",
    .packable = "w",
    .stands_for = "logits = linear x w\n"
                  "losses lse = token_losses logits labels",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.size(0, 1) == rule.size(1, 1), "x and w differ in their last dim");
      rule.shape(2, {rule.dim(0, 0)});
      return losses_and_lse(rule);
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> d_in(op.in.size(), none);
      if (d_out[0] != none) d_in[0] = head_gradients(writer, op, op.in[2], none, d_out[0]);
      return d_in;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) { return products(listing, op, rows, 1); },
};

// Token losses where tp cuts the vocabulary: a part's own, and with lse over all parts what is this rank's share of a
// token's loss. See sharded_loss.
const OpDef token_losses_part{
    .kind = "token_losses_part",
    .operands = "logits labels", .results = "losses lse",
    .infer = token_losses.infer};

const OpDef sharded_token_losses{
    .kind = "sharded_token_losses",
    .operands = "logits labels lse_parts labels_part lse_part losses_part", .results = "losses lse",
    .infer = by_rule([](const Rule& rule) {
      for (const size_t rows : {1, 3, 4, 5}) rule.shape(rows, {rule.dim(0, 0)});
      rule.require(rule.size(2, 0) % std::max<int64_t>(1, rule.size(0, 0)) == 0, "lse_parts is not whole parts");
      return losses_and_lse(rule);
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> d_in(op.in.size(), none);
      if (d_out[0] != none) d_in[0] = logits_gradient(writer, op, op.in[1], none, d_out[0]);
      return d_in;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = static_cast<double>(listing.bytes(op.in[2], rows))};
    },
};
// clang-format on

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
          &sharded_loss,
          &token_losses,
          &linear_token_losses,
          &token_losses_part,
          &sharded_token_losses};
}

}  // namespace heddle::ops
