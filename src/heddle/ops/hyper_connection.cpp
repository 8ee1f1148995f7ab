// Hyper-connections (Zhu et al., arXiv 2409.19606), constrained to a manifold (mHC: Xie et al., arXiv 2512.24880)
// as DeepSeek-V4 has them. The residual is n streams of H columns, side by side in one row x [T, n·H]. A block
// reads one mix of them and writes to another. A linear map of the row, q = x·fnᵀ, makes the weights:
//   z = q·scale·rstd + base, with rstd = (mean x² + ε)^−½ over the whole row
//   pre [n] = σ(z) + e, post [n] = 2σ(z)
//   comb [n, n] = softmax of each row of z, + e; then its columns, and `iterations` − 1 times its rows and its
//   columns,
//     are divided by their sums + e (Sinkhorn and Knopp, 1967)
//   y = Σ_i pre_i·x_i is read; of the block's output a, s_k = post_k·a + Σ_j comb_jk·x_j is written
// q has n·(2 + n) columns, and three scales. At the head, which only reads, it has n and one.
//
// Independent ones (Hy4) mix no streams: q has 2·n columns and two scales, post is magnitude·σ(z) + e, and
// s_k = x_k + post_k·a. `write_streams` takes weights of n columns too, which are post alone.
#include "heddle/ops/hyper_connection.h"

#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef read_streams_dgrad, write_streams_dgrad;

// Columns of a stream.
Dim stream_of(const Rule& rule, const Op& op, size_t x) {
  rule.require(op.attributes.integer("streams") <= kMostStreams, "more streams than kernels have room for");
  return fixed(rule.quotient(rule.size(x, 1), op.attributes.integer("streams"), "columns are not whole streams"));
}

// Checks q, base and scale, which stand behind operand `x`.
void check_weights(const Rule& rule, const Op& op, size_t x) {
  const int64_t n = op.attributes.integer("streams"), columns = rule.size(x + 1, 1);
  const bool writes = columns != n, mixes = columns == n * (2 + n);
  const int64_t iterations = op.attributes.integer_or("iterations", 1);
  rule.require(iterations >= 1 && iterations <= kMostStreamIterations, "as many iterations have no room");
  rule.require(!mixes || op.attributes.has("iterations"), "a mix of streams has no iterations");
  rule.require(!writes || mixes || columns == 2 * n, "q has not the columns of its weights");
  rule.is(x + 1, wide(rule.dtype(x)), {rule.dim(x, 0), fixed(columns)}, "q is not wide");
  rule.is(x + 2, wide(rule.dtype(x)), {fixed(columns)}, "base is not wide");
  rule.is(x + 3, wide(rule.dtype(x)), {fixed(mixes ? 3 : writes ? 2 : 1)}, "scale is not wide");
}

// clang-format off
const OpDef read_streams{
    .kind = "read_streams",
    .operands = "x q base scale", .results = "y w rstd", .attributes = "streams iterations? magnitude? epsilon norm_epsilon",
    .work = ir::Work::norm,
    .by_row = "x q y w rstd",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_weights(rule, op, 0);
      const Dtype a = wide(rule.dtype(0));
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), stream_of(rule, op, 0)}),
                         output(a, rule.in(1).shape),
                         output(a, {rule.dim(0, 0)}, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], q = op.in[1], base = op.in[2], scale = op.in[3];
      const auto out = writer.input_gradient(read_streams_dgrad, {d_out[0], x, q, base, scale, op.out[2], d_out[1], none},
                                             {writer.d(x), writer.d(q), writer.d(base), writer.d(scale)},
                                             op.attributes);
      writer.weight_gradient(find("accumulate"), {out[2]}, {base});
      writer.weight_gradient(find("accumulate"), {out[3]}, {scale});
      return std::vector{out[0], out[1], none, none};
    },
};

const OpDef read_streams_dgrad{
    .kind = "read_streams_dgrad",
    .operands = "dy x q base scale rstd dw? dres?", .results = "dx dq dbase dscale",
    .attributes = "streams iterations? magnitude? epsilon norm_epsilon",
    .stands_for = "own dq dbase dscale = read_streams_dgrad dy x q base scale rstd dw\n"
                  "dx = add dres own",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.shape(0, {rule.dim(1, 0), stream_of(rule, op, 1)});
      check_weights(rule, op, 1);
      rule.shape(5, {rule.dim(1, 0)});
      if (rule.has(6)) rule.same(6, 2);
      if (rule.has(7)) rule.same(7, 1);
      return std::vector{rule.like(1), rule.like(2), rule.like(3), rule.like(4)};
    }),
};

const OpDef write_streams{
    .kind = "write_streams",
    .operands = "x a w", .results = "s", .attributes = "streams",
    .by_row = "x a w s",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t n = op.attributes.integer("streams");
      rule.is(1, rule.dtype(0), {rule.dim(0, 0), stream_of(rule, op, 0)}, "a is of another type than x");
      const int64_t columns = rule.size(2, 1);
      rule.require(columns == n * (2 + n) || columns == 2 * n || columns == n, "w has not the columns of its weights");
      rule.is(2, wide(rule.dtype(0)), {rule.dim(0, 0), fixed(columns)}, "w is not wide");
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(write_streams_dgrad, {d_out[0], op.in[0], op.in[1], op.in[2]},
                                   {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, op.attributes);
    },
};

const OpDef write_streams_dgrad{
    .kind = "write_streams_dgrad",
    .operands = "ds x a w", .results = "dx da dw", .attributes = "streams",
    .by_row = "ds x a w dx da dw",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      rule.is(2, rule.dtype(1), {rule.dim(1, 0), stream_of(rule, op, 1)}, "a is of another type than x");
      return std::vector{rule.like(1), rule.like(2), rule.like(3)};
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> hyper_connection_ops() {
  return {&read_streams, &read_streams_dgrad, &write_streams, &write_streams_dgrad};
}

}  // namespace heddle::ops
