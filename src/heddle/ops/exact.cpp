// Sums that no order can change; see passes/exact_sums.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// clang-format off
const OpDef add_exact{
    .kind = "add_exact",
    .operands = "partial", .updates = "sum",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.in(0).shape == rule.updated(0).shape, "partial and sum differ in shape");
      rule.require(rule.updated(0).dtype == Dtype::f64, "the sum is not f64");
    }),
};

// x[R,K], dy[R,N], offsets i32[E+C+1], n i32[2,G,E+C] (absent: one source). Updates sum f64[E,N,K], and makes the same
// of the last C, where there are copies.
const OpDef grouped_linear_wgrad_exact{
    .kind = "grouped_linear_wgrad_exact",
    .operands = "x dy offsets counts?", .results = "dcopies?", .updates = "sum", .attributes = "copies?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(rule.dim(0, 0) == rule.dim(1, 0), "x and dy differ in rows");
      const ir::Shape& sum = rule.updated(0).shape;
      rule.require(sum.size() == 3 && sum[1] == rule.dim(1, 1) && sum[2] == rule.dim(0, 1), "the sum is not [E, N, K]");
      const int64_t copies = op.attributes.integer_or("copies", 0);
      rule.shape(2, {fixed(sum[0].count + copies + 1)});
      if (rule.has(3)) rule.require(rule.size(3, 2) == sum[0].count + copies, "counts and sum differ in experts");
      if (copies == 0) return std::vector<Value>{};
      return std::vector{output(Dtype::f64, {fixed(copies), sum[1], sum[2]}, Role::gradient)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = 2.0 * rows_of(listing, op.in[0], rows) * columns_of(listing, op.in[0]) * columns_of(listing, op.in[1]);
      return cost;
    },
};

const OpDef round_gradient{
    .kind = "round_gradient",
    .operands = "sums*", .results = "g", .attributes = "dtype",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(!op.in.empty(), "needs a sum");
      for (size_t i = 0; i < op.in.size(); ++i) {
        rule.same(i, 0);
        rule.require(rule.dtype(i) == Dtype::f64, "the sum is not f64");
      }
      const Dtype dtype = op.attributes.word("dtype") == "f64" ? Dtype::f64 : Dtype::f32;
      return std::vector{output(dtype, rule.in(0).shape, Role::metadata)};
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> exact_ops() { return {&add_exact, &grouped_linear_wgrad_exact, &round_gradient}; }

}  // namespace heddle::ops
