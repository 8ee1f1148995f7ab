// Gated residual streams (Qwen4). The residual is n streams of H columns, side by side in one row x [T, n·H]. A
// block reads one weighted mean of the normed streams, whose weights u are a number an element, and writes to each
// stream by a weight of the token:
//   y_i = x_i·rstd_i·(offset + g_i) with rstd_i = (mean x_i² + ε)^−½, each stream by itself, under a gain of n·H
//   r = Σ_i σ(u_i)·y_i ÷ n is read; w = 2σ(q ÷ n) are the weights of writing, from a map q [T, n] of the row y
//   of the block's output a, s_i = x_i + w_i·a is written (write_streams)
// Embeddings of n-grams are gated by what a stream holds (gate_streams): of keys k and queries y, both normed,
//   d_i = k_i·y_i ÷ √H,  e_i = sign(d_i)·√max(|d_i|, 10⁻⁶),  s_i = σ(e_i)·v
#include "heddle/ops/hyper_connection.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef norm_streams_dgrad, read_gated_streams_dgrad, gate_streams_dgrad;

int64_t stream_count(const Op& op) { return op.attributes.integer("streams"); }

// Columns of a stream of operand `x`.
Dim one_stream(const Rule& rule, const Op& op, size_t x) {
  rule.require(stream_count(op) <= kMostStreams, "more streams than kernels have room for");
  return fixed(rule.quotient(rule.size(x, 1), stream_count(op), "columns are not whole streams"));
}

// Checks the gain behind operand `x`; the shape of rstd.
ir::Shape check_stream_norm(const Rule& rule, const Op& op, size_t x) {
  one_stream(rule, op, x);
  rule.is(x + 1, wide(rule.dtype(x)), {rule.dim(x, 1)}, "the gain is not wide");
  return {rule.dim(x, 0), fixed(stream_count(op))};
}

// Checks a number a stream of operand `x`, at `w`.
void check_stream_numbers(const Rule& rule, const Op& op, size_t w, size_t x) {
  rule.is(w, wide(rule.dtype(x)), {rule.dim(x, 0), fixed(stream_count(op))}, "numbers of streams are not wide");
}

// Checks what each stream of operand `x` has alike, at `a`.
void check_stream_row(const Rule& rule, const Op& op, size_t a, size_t x) {
  rule.is(a, rule.dtype(x), {rule.dim(x, 0), one_stream(rule, op, x)}, "a row is of another type than streams");
}

// clang-format off
const OpDef norm_streams{
    .kind = "norm_streams",
    .operands = "x g", .results = "y rstd", .attributes = "streams epsilon offset?",
    .work = ir::Work::norm,
    .by_row = "x y rstd",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const ir::Shape norms = check_stream_norm(rule, op, 0);
      return std::vector{rule.like(0), output(wide(rule.dtype(0)), norms, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      Attributes attributes{{"streams", stream_count(op)}};
      if (op.attributes.has("offset")) attributes.set("offset", op.attributes.number("offset"));
      const auto out = writer.input_gradient(norm_streams_dgrad, {d_out[0], op.in[0], op.in[1], op.out[1], none},
                                             {writer.d(op.in[0]), writer.d(op.in[1])}, std::move(attributes));
      writer.weight_gradient(find("accumulate"), {out[1]}, {op.in[1]});
      return std::vector{out[0], none};
    },
};

const OpDef norm_streams_dgrad{
    .kind = "norm_streams_dgrad",
    .operands = "dy x g rstd dres?", .results = "dx dg", .attributes = "streams offset?",
    .stands_for = "own dg = norm_streams_dgrad dy x g rstd\n"
                  "dx = add dres own",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      rule.shape(3, check_stream_norm(rule, op, 1));
      if (rule.has(4)) rule.same(4, 1);
      return std::vector{rule.like(1), output(rule.dtype(2), rule.in(2).shape)};
    }),
};

const OpDef read_gated_streams{
    .kind = "read_gated_streams",
    .operands = "y u q?", .results = "r w?", .attributes = "streams",
    .work = ir::Work::activation,
    .by_row = "y u q r w",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      std::vector<Value> out{output(rule.dtype(0), {rule.dim(0, 0), one_stream(rule, op, 0)})};
      if (!rule.has(2)) return out;
      check_stream_numbers(rule, op, 2, 0);
      out.push_back(output(rule.dtype(2), rule.in(2).shape));
      return out;
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId y = op.in[0], u = op.in[1], q = operand(op, 2);
      std::vector<std::string> names{writer.d(y), writer.d(u)};
      std::vector<ValueId> in{d_out[0], y, u};
      const bool writes = q != none && d_out[1] != none;
      if (writes) {
        names.push_back(writer.d(q));
        in.insert(in.end(), {op.out[1], d_out[1]});
      }
      std::vector<ValueId> d = writer.input_gradient(read_gated_streams_dgrad, in, names, op.attributes);
      d.resize(op.in.size(), none);
      return d;
    },
};

const OpDef read_gated_streams_dgrad{
    .kind = "read_gated_streams_dgrad",
    .operands = "dr y u w? dw?", .results = "dy du dq?", .attributes = "streams",
    .by_row = "dr y u w dw dy du dq",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(1, 2);
      check_stream_row(rule, op, 0, 1);
      std::vector<Value> out{rule.like(1), rule.like(2)};
      if (!rule.has(3)) return out;
      check_stream_numbers(rule, op, 3, 1);
      rule.same(4, 3);
      out.push_back(rule.like(3));
      return out;
    }),
};

const OpDef gate_streams{
    .kind = "gate_streams",
    .operands = "k y v", .results = "s", .attributes = "streams",
    .work = ir::Work::activation,
    .by_row = "k y v s",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      check_stream_row(rule, op, 2, 0);
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(gate_streams_dgrad, {d_out[0], op.in[0], op.in[1], op.in[2]},
                                   {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, op.attributes);
    },
};

const OpDef gate_streams_dgrad{
    .kind = "gate_streams_dgrad",
    .operands = "ds k y v", .results = "dk dy dv", .attributes = "streams",
    .by_row = "ds k y v dk dy dv",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      rule.same(1, 2);
      check_stream_row(rule, op, 3, 1);
      return std::vector{rule.like(1), rule.like(2), rule.like(3)};
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> gated_stream_ops() {
  return {&norm_streams, &norm_streams_dgrad, &read_gated_streams, &read_gated_streams_dgrad,
          &gate_streams, &gate_streams_dgrad};
}

}  // namespace heddle::ops
