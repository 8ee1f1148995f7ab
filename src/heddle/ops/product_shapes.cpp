#include "heddle/ops/product_shapes.h"

namespace heddle::ops {

namespace {

bool is_turned(const Op& op) { return op.attributes.integer_or("turned", 0) != 0; }

int64_t copies_of(const Rule& rule, size_t w, size_t copies) {
  if (!rule.has(copies)) return 0;
  const Value &own = rule.in(w), &others = rule.in(copies);
  rule.require(others.shape.size() == 3 && others.shape[1] == own.shape[1] && others.shape[2] == own.shape[2] &&
                   others.dtype == own.dtype && others.layout == own.layout,
               "replicas are not like w");
  return others.shape[0].count;
}

void check_groups(const Rule& rule, size_t w) {
  check_offsets(rule, w + 1, rule.size(w, 0) + copies_of(rule, w, w + 2));
}

}  // namespace

Cost product_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  Cost cost = operand_cost(listing, op, rows);
  const ir::Shape& w = listing.value(op.updates.empty() ? op.operand("w") : op.updates[0]).shape;
  cost.flops = 2.0 * rows_of(listing, op.in[0], rows) * static_cast<double>(w[w.size() - 2].count) *
               static_cast<double>(w.back().count);
  return cost;
}

std::vector<Value> linear_shape(const Rule& rule, size_t w, Dtype dtype) {
  rule.require(rule.size(0, 1) == rule.size(w, 1), "x and w differ in their last dim");
  if (rule.has(w + 1)) rule.shape(w + 1, {rule.dim(w, 0)});
  return {output(dtype, {rule.dim(0, 0), rule.dim(w, 0)})};
}

std::vector<Value> linear_dgrad_shape(const Rule& rule, const Op& op) {
  const size_t out = is_turned(op) ? 1 : 0;
  rule.require(rule.size(0, 1) == rule.size(1, out), "dy's columns are not w's rows");
  return {output(dtype_named(op.attributes.word("dtype")), {rule.dim(0, 0), rule.dim(1, 1 - out)})};
}

std::vector<Value> linear_wgrad_shape(const Rule& rule, size_t dy) {
  rule.require(rule.dim(0, 0) == rule.dim(dy, 0), "x and dy differ in rows");
  rule.require(rule.updated(0).shape == ir::Shape{rule.dim(dy, 1), rule.dim(0, 1)}, "acc is not [N, K]");
  return {};
}

void check_offsets(const Rule& rule, size_t offsets, int64_t groups) {
  rule.shape(offsets, {fixed(groups + 1)});
  rule.require(rule.dtype(offsets) == Dtype::i32, "offsets are not i32");
}

std::vector<Value> grouped_shape(const Rule& rule, size_t w, Dtype dtype) {
  rule.require(rule.size(0, 1) == rule.size(w, 2), "x and w differ in their last dim");
  check_groups(rule, w);
  return {output(dtype, {rule.dim(0, 0), rule.dim(w, 1)})};
}

std::vector<Value> grouped_dgrad_shape(const Rule& rule, const Op& op) {
  const size_t out = is_turned(op) ? 2 : 1;
  rule.require(rule.size(0, 1) == rule.size(1, out), "dy's columns are not w's rows");
  check_groups(rule, 1);
  return {output(rule.dtype(0), {rule.dim(0, 0), rule.dim(1, 3 - out)})};
}

std::vector<Value> grouped_wgrad_shape(const Rule& rule, const Op& op, size_t dy) {
  rule.require(rule.dim(0, 0) == rule.dim(dy, 0), "x and dy differ in rows");
  const Value& sum = rule.updated(0);
  const ir::Shape& acc = sum.shape;
  rule.require(acc.size() == 3 && acc[1] == rule.dim(dy, 1) && acc[2] == rule.dim(0, 1), "acc is not [E, N, K]");
  const int64_t copies = op.attributes.integer_or("copies", 0);
  check_offsets(rule, dy + 1, acc[0].count + copies);
  if (copies == 0) return {};
  return {output(sum.dtype, {fixed(copies), acc[1], acc[2]}, Role::gradient)};
}

}  // namespace heddle::ops
