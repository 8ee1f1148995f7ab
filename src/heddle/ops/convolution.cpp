// The ops around a recurrence (recurrence.cpp): the short causal convolution before it, the decay that it takes,
// and the gated norm behind it.
#include "heddle/ops/ops.h"
#include "heddle/ops/recurrence.h"

namespace heddle::ops {

namespace {

extern const OpDef causal_conv_dgrad, causal_conv_before_dgrad, rows_before, log_decay_dgrad, gated_norm_dgrad;

// The rows before its own that a kernel reaches; with `dilation` those that it sees are so many apart.
int64_t rows_before_own(int64_t kernel, const Attributes& attributes) {
  return (kernel - 1) * attributes.integer_or("dilation", 1);
}

// x at `x`, then the weight and the bias.
void check_convolution(const Rule& rule, const Op& op, size_t x) {
  const int64_t channels = rule.size(x, 1) * op.attributes.integer_or("parts", 1);
  const Dtype A = wide(rule.dtype(x));
  rule.require(rule.dtype(x + 1) == A && (!rule.has(x + 2) || rule.dtype(x + 2) == A), "a weight is not wide");
  rule.require(rule.in(x + 1).shape.size() == 2 && rule.size(x + 1, 1) >= 1,
               "the weight is not [channels, kernel]");
  rule.shape(x + 1, {fixed(channels), rule.dim(x + 1, 1)});
  if (rule.has(x + 2)) rule.shape(x + 2, {fixed(channels)});
  const int64_t taps = rows_before_own(rule.size(x + 1, 1), op.attributes), S = op.attributes.integer("sequence");
  const Dim& rows = rule.dim(x, 0);
  if (rule.has("before")) {
    rule.require(rule.dtype(rule.place("before")) == rule.dtype(x), "the rows before are not of x's type");
    rule.shape(rule.place("before"), {fixed(rows.count / S * taps), rule.dim(x, 1)});
  }
  if (!rule.has("behind")) return;
  rule.require(rule.dtype(rule.place("behind")) == A, "gradients from behind are not wide");
  rule.shape(rule.place("behind"), {fixed(rows.count / S * std::min(taps, S)), rule.dim(x, 1)});
}

// clang-format off
const OpDef causal_conv{
    .kind = "causal_conv",
    .operands = "x weight bias? starts? before?", .results = "y", .attributes = "sequence silu? parts? ranks? dilation?",
    .work = ir::Work::activation,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_convolution(rule, op, 0);
      check_sequences(rule, op, 0);
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], weight = op.in[1], bias = operand(op, 2), before = op.operand("before");
      std::vector<std::string> names{writer.d(x), writer.d(weight)};
      if (bias != none) names.push_back(writer.d(bias));
      std::vector<ValueId> in{d_out[0], x, weight, bias, operand(op, 3), before};
      if (before != none) {
        const int64_t taps = rows_before_own(writer.listing().value(weight).shape[1].count, op.attributes);
        const int64_t S = op.attributes.integer("sequence");
        writer.communicate_over("cp");
        const ValueId own =
            writer.input_gradient(causal_conv_before_dgrad, in, {writer.d(before)}, op.attributes)[0];
        const ValueId all = writer.input_gradient(find("all_gather"), {own}, {writer.d(before) + ".sequence"},
                                                  exchange_of_pieces(writer.listing(), op, x))[0];
        in.push_back(writer.input_gradient(rows_before, {all}, {writer.d(x) + ".behind"},
                                           {{"ranks", op.attributes.integer("ranks")},
                                            {"rows", std::min(taps, S)},
                                            {"count", taps},
                                            {"reverse", int64_t{1}}})[0]);
      }
      const auto made = writer.input_gradient(causal_conv_dgrad, trimmed(in), names, op.attributes);
      writer.weight_gradient(find("accumulate"), {made[1]}, {weight});
      if (bias != none) writer.weight_gradient(find("accumulate"), {made[2]}, {bias});
      std::vector<ValueId> d(op.in.size(), none);
      d[0] = made[0];
      return d;
    },
};

const OpDef causal_conv_dgrad{
    .kind = "causal_conv_dgrad",
    .operands = "dy x weight bias? starts? before? behind?", .results = "dx dweight dbias?",
    .attributes = "sequence silu? parts? ranks? dilation?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      check_convolution(rule, op, 1);
      check_sequences(rule, op, 1);
      std::vector<Value> out{rule.like(1), output(rule.dtype(2), rule.in(2).shape)};
      if (rule.has(3)) out.push_back(output(rule.dtype(3), rule.in(3).shape));
      return out;
    }),
};

// It reads the first rows of each piece alone.
Cost cost_of_ends(const Listing& listing, const Op& op, const RowCounts& rows) {
  Cost cost;
  cost.bytes = 3.0 * static_cast<double>(listing.bytes(op.out[0], rows));
  return cost;
}

// The gradient of the rows before each piece, wide: the next op adds it to that of the rows themselves.
const OpDef causal_conv_before_dgrad{
    .kind = "causal_conv_before_dgrad",
    .operands = "dy x weight bias? starts? before", .results = "dbefore", .attributes = "sequence silu? parts? ranks? dilation?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      check_convolution(rule, op, 1);
      check_sequences(rule, op, 1);
      return std::vector{output(wide(rule.dtype(1)), rule.in(5).shape)};
    }),
    .cost = cost_of_ends,
};

const OpDef piece_ends{
    .kind = "piece_ends",
    .operands = "x", .results = "y", .attributes = "sequence count",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t S = op.attributes.integer("sequence"), count = op.attributes.integer("count");
      check_sequences(rule, op, 0);
      rule.require(count >= 0 && count <= S, "a sequence has not so many rows");
      Value v = rule.like(0);
      v.shape[0] = fixed(rule.dim(0, 0).count / S * count);
      v.role = Role::metadata;
      return std::vector{std::move(v)};
    }),
    .cost = cost_of_ends,
};

// x has the last n rows of all pieces, or, reverse, gradients of the rows before all pieces.
const OpDef rows_before{
    .kind = "rows_before",
    .operands = "x", .results = "y", .attributes = "ranks rows count reverse?",
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Attributes& a = op.attributes;
      const int64_t ranks = a.integer("ranks"), rows = a.integer("rows"), count = a.integer("count");
      const bool reverse = a.integer_or("reverse", 0) != 0;
      rule.require(ranks >= 1 && rows >= 0 && count >= rows, "a size is below what it must be");
      Value v = rule.like(0);
      const int64_t each = 2 * ranks * (reverse ? count : rows);
      rule.require(each == 0 ? rule.dim(0, 0).count == 0 : rule.dim(0, 0).count % each == 0,
                   "rows are not those of all pieces");
      v.shape[0] = fixed(each == 0 ? 0 : rule.dim(0, 0).count / each * 2 * (reverse ? rows : count));
      if (!reverse) v.role = Role::metadata;
      return std::vector{std::move(v)};
    }),
    .cost = cost_of_ends,
};

const OpDef cached_conv{
    .kind = "cached_conv",
    .operands = "x weight bias? places", .results = "y", .updates = "tails", .attributes = "sequence silu? dilation?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_convolution(rule, op, 0);
      check_places(rule, rule.place("places"));
      const Value& tails = rule.updated(0);
      const int64_t kept = rows_before_own(rule.size(1, 1), op.attributes) * rule.size(0, 1);
      rule.require(tails.dtype == rule.dtype(0) && tails.shape.size() == 2 && tails.shape[1] == fixed(kept),
                   "tails are not the last rows of x, one run a sequence");
      return std::vector{rule.like(0)};
    }),
};
// clang-format on

void check_log_decay(const Rule& rule, const Op& op, size_t x) {
  const Attributes& a = op.attributes;
  const Dtype A = wide(rule.dtype(x));
  rule.require(rule.dtype(x + 1) == A && rule.in(x + 1).shape.size() == 1, "a_log is not [heads] of the wide type");
  rule.quotient(rule.size(x, 1), rule.size(x + 1, 0), "columns are not whole runs of heads");
  if (rule.has(x + 2)) {
    rule.require(rule.dtype(x + 2) == A, "dt_bias is not of the wide type");
    rule.shape(x + 2, {rule.dim(x, 1)});
  }
  rule.require(a.number_or("least", 0) <= a.number_or("most", 1e300), "the least step is above the most");
  if (!a.has("bound")) return;
  rule.require(a.number("bound") < 0, "the bound of a log decay is not below zero");
  rule.require(!a.has("least") && !a.has("most") && a.integer_or("step", 0) == 0 && !rule.has("dstep"),
               "a bounded decay has no step");
}

// clang-format off
// The bounded form is that of Ling 3 and GLM-5.3, which keeps a product of decays within the range of a number.
const OpDef log_decay{
    .kind = "log_decay",
    .operands = "x a_log dt_bias?", .results = "decay step?", .attributes = "step? least? most? bound?",
    .work = ir::Work::activation,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_log_decay(rule, op, 0);
      std::vector<Value> out{output(wide(rule.dtype(0)), rule.in(0).shape)};
      if (op.attributes.integer_or("step", 0) != 0) out.push_back(out[0]);
      return out;
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], a_log = op.in[1], bias = operand(op, 2);
      const ValueId d_step = d_out.size() > 1 ? d_out[1] : none;
      std::vector<std::string> names{writer.d(x), writer.d(a_log)};
      if (bias != none) names.push_back(writer.d(bias));
      Attributes limits;
      for (const char* name : {"least", "most", "bound"}) {
        if (op.attributes.has(name)) limits.set(name, op.attributes.number(name));
      }
      const auto made = writer.input_gradient(log_decay_dgrad, trimmed({x, a_log, bias, d_out[0], d_step}), names,
                                              limits);
      writer.weight_gradient(find("accumulate"), {made[1]}, {a_log});
      if (bias != none) writer.weight_gradient(find("accumulate"), {made[2]}, {bias});
      std::vector<ValueId> d(op.in.size(), none);
      d[0] = made[0];
      return d;
    },
};

const OpDef log_decay_dgrad{
    .kind = "log_decay_dgrad",
    .operands = "x a_log dt_bias? ddecay? dstep?", .results = "dx da_log ddt_bias?", .attributes = "least? most? bound?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_log_decay(rule, op, 0);
      for (const size_t i : {3, 4}) {
        if (!rule.has(i)) continue;
        rule.require(rule.dtype(i) == wide(rule.dtype(0)), "a gradient is not of the wide type");
        rule.shape(i, rule.in(0).shape);
      }
      std::vector<Value> out{rule.like(0), output(rule.dtype(1), rule.in(1).shape)};
      if (rule.has(2)) out.push_back(output(rule.dtype(2), rule.in(2).shape));
      return out;
    }),
};
// clang-format on

// The shape of rstd: a norm a run of columns.
ir::Shape check_gated_norm(const Rule& rule, const Op& op, size_t x) {
  rule.same(x, x + 1);
  const int64_t run = op.attributes.integer("run"), columns = rule.size(x, 1);
  rule.require(rule.in(x + 2).shape.size() == 1 && rule.dtype(x + 2) == wide(rule.dtype(x)),
               "the gain is not of the wide type");
  rule.quotient(columns, rule.size(x + 2, 0), "columns are not whole runs of the gain's width");
  return {rule.dim(x, 0), fixed(rule.quotient(columns, run, "columns are not whole runs"))};
}

// clang-format off
const OpDef gated_norm{
    .kind = "gated_norm",
    .operands = "x gate g", .results = "y rstd", .attributes = "epsilon run gate_first? sigmoid?",
    .work = ir::Work::norm,
    .by_row = "x gate y rstd",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const ir::Shape norms = check_gated_norm(rule, op, 0);
      return std::vector{rule.like(0), output(wide(rule.dtype(0)), norms, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      Attributes attributes = op.attributes;
      const auto made =
          writer.input_gradient(gated_norm_dgrad, {d_out[0], op.in[0], op.in[1], op.in[2], op.out[1]},
                                {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, attributes);
      writer.weight_gradient(find("accumulate"), {made[2]}, {op.in[2]});
      return std::vector{made[0], made[1], none};
    },
};

const OpDef gated_norm_dgrad{
    .kind = "gated_norm_dgrad",
    .operands = "dy x gate g rstd", .results = "dx dgate dg", .attributes = "epsilon run gate_first? sigmoid?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.same(0, 1);
      rule.shape(4, check_gated_norm(rule, op, 1));
      return std::vector{rule.like(1), rule.like(2), output(rule.dtype(3), rule.in(3).shape)};
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> convolution_ops() {
  return {&causal_conv, &causal_conv_dgrad, &causal_conv_before_dgrad, &piece_ends, &rows_before,
          &cached_conv, &log_decay,         &log_decay_dgrad,          &gated_norm, &gated_norm_dgrad};
}

}  // namespace heddle::ops
