// The end of a step: gradient norm and clipping, AdamW (Loshchilov and Hutter, arXiv 1711.05101), and the weights
// that the kernels read made from the masters.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"
#include "heddle/ops/update/joined.h"

namespace heddle::ops {

namespace {

std::vector<Value> nothing(const Listing&, const Op&) { return {}; }

// clang-format off
const OpDef grad_square_sum{
    .kind = "grad_square_sum",
    .operands = "accumulators*", .results = "part",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(!op.in.empty(), "needs an accumulator");
      for (size_t i = 1; i < op.in.size(); ++i) rule.same(i, 0);
      return std::vector{output(Dtype::f64, {fixed(1)}, Role::metadata)};
    }),
};

// The square sum in fixed point, as four limbs; sum_parts adds limbs up, grad_norm reads them.
const OpDef grad_square_sum_exact{
    .kind = "grad_square_sum_exact",
    .operands = "g", .results = "part",
    .infer = [](const Listing&, const Op&) {
      return std::vector{output(Dtype::f64, {fixed(4)}, Role::metadata)};
    },
};

const OpDef sum_parts{
    .kind = "sum_parts",
    .operands = "parts*", .results = "sum", .attributes = "size",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const ir::Shape shape{fixed(op.attributes.integer("size"))};
      for (size_t i = 0; i < op.in.size(); ++i) rule.shape(i, shape);
      return std::vector{output(Dtype::f64, shape, Role::metadata)};  // of no parts: zero
    }),
};

const OpDef grad_norm{
    .kind = "grad_norm",
    .operands = "parts*", .results = "norm clip", .attributes = "max_norm",
    .infer = [](const Listing&, const Op&) {
      return std::vector{output(Dtype::f64, {fixed(1)}, Role::metadata),
                         output(Dtype::f64, {fixed(1)}, Role::metadata)};
    },
};

// Leaves the step out where its norm or its loss exceeds the batch's limit for it, or is not finite. A factor of 0
// moves no parameter and no moment, and the rate of the balancing biases is 0 then.
const OpDef skip_outlier{
    .kind = "skip_outlier",
    .operands = "norm clip hyper limits loss", .results = "clip hyper skipped",
    .infer = by_rule([](const Rule& rule) {
      for (const size_t one : {0, 1, 4}) rule.shape(one, {fixed(1)});
      rule.shape(2, {fixed(4)});
      rule.shape(3, {fixed(2)});
      return std::vector{output(Dtype::f64, {fixed(1)}, Role::metadata), output(Dtype::f64, {fixed(4)}, Role::metadata),
                         output(Dtype::f64, {fixed(1)}, Role::metadata)};
    }),
};

// Both are of one type, or the first is a byte in units of the second's root (ops/moment_byte.h).
void check_moments(const Rule& rule) {
  const Dtype m = rule.updated(1).dtype, v = rule.updated(2).dtype;
  rule.require(m == Dtype::u8 ? v == Dtype::bf16 : m == v, "moments of two types");
}

const OpDef adamw{
    .kind = "adamw",
    .operands = "clip hyper accumulators*", .updates = "master m v copy?",
    .attributes = "beta1 beta2 epsilon decay copy",
    .by_element = "accumulators* master m v copy?",
    .overwrites = "copy?",
    .reaches_host = "m v",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(op.in.size() >= 3, "needs clip, hyper and an accumulator");
      const bool copy = op.attributes.integer("copy") != 0;
      rule.require(op.updates.size() == (copy ? 4u : 3u), "needs master, both moments and the copy when copy = 1");
      for (size_t i = 0; i < op.updates.size(); ++i) {
        rule.require(rule.updated(i).shape == rule.in(2).shape, "master, moments and accumulator differ in shape");
      }
      check_moments(rule);
    }),
};

// AdamW where master and bf16 weight are kept as one. `w` is the master rounded, `rest` its lower 16 bits. The sign of
// v, which is never negative, says where a master that lay halfway between two weights was rounded up
// (base/numbers/split_float.h).
const OpDef adamw_split{
    .kind = "adamw_split",
    .operands = "clip hyper accumulators*", .updates = "rest m v w",
    .attributes = "beta1 beta2 epsilon decay",
    .by_element = "accumulators* rest m v w",
    .reaches_host = "m v",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(op.in.size() >= 3, "needs clip, hyper and an accumulator");
      rule.require(rule.updated(0).dtype == Dtype::u16 && rule.updated(3).dtype == Dtype::bf16,
                   "splits an f32 into bf16 and u16");
      for (size_t i = 0; i < op.updates.size(); ++i) {
        rule.require(rule.updated(i).shape == rule.in(2).shape, "rest, moments, weight and accumulator differ in shape");
      }
      check_moments(rule);
    }),
};

// The average of a master over steps, exponential: average += (1 − decay)·(master − average). It stays where the step
// is left out, whose factor is 0.
const OpDef average_master{
    .kind = "average_master",
    .operands = "clip master", .updates = "average", .attributes = "decay",
    .by_element = "master average",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(0, {fixed(1)});
      rule.require(rule.updated(0).shape == rule.in(1).shape && rule.updated(0).dtype == rule.dtype(1),
                   "master and average differ in shape or type");
    }),
};

// A weight made anew from its master: the target is written, not read.
Cost remake_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  return Cost{.bytes = static_cast<double>(listing.bytes(op.in[0], rows) + listing.bytes(op.updates[0], rows))};
}

const OpDef pack_weight{
    .kind = "pack_weight",
    .operands = "master", .updates = "w",
    .overwrites = "w",
    .infer = nothing, .cost = remake_cost};
const OpDef cast_weight{
    .kind = "cast_weight",
    .operands = "master", .updates = "w",
    .overwrites = "w",
    .infer = nothing, .cost = remake_cost};

}  // namespace
// clang-format on

std::vector<const OpDef*> optimizer_ops() {
  std::vector<const OpDef*> defs{
      &grad_square_sum, &grad_square_sum_exact, &sum_parts,      &grad_norm,   &skip_outlier,
      &adamw,           &adamw_split,           &average_master, &pack_weight, &cast_weight};
  for (const OpDef* joined : joined_ops()) defs.push_back(joined);
  return defs;
}

}  // namespace heddle::ops
