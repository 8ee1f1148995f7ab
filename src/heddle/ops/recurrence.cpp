// Recurrences along the sequence: linear attention with decay, state-space models and delta rules are one op. Further
// ops are the short causal convolution before it, the decay that it takes, and the gated norm behind it.
//
// T rows are whole sequences of S rows. Each of h value heads has a state: a matrix of dk × dv numbers of the wide
// type. It is zero where a document begins.
//   S_t = exp(g_t)·S_{t−1} + β_t·k_t·u_tᵀ,  u_t = v_t or, by the delta rule, v_t − (exp(g_t)·S_{t−1})ᵀ k_t
//   o_t = scale·S_tᵀ q_t + skip·v_t
// hk key heads have q and k; value head j reads those of key head j ÷ (h/hk). The logarithm g of the decay is a number a
// head (Mamba-2, arXiv 2405.21060; Gated DeltaNet, arXiv 2412.06464) or one a key channel (Kimi Linear, arXiv
// 2510.26692). With `slopes` f it is the constant −f·m_j, with the slopes m_j of ALiBi (arXiv 2108.12409) over
// slope_heads heads (lightning attention, arXiv 2401.04658). With `epsilon` each head's q and k become
// x·(Σx² + ε)^−½. With `sigmoid` the operand beta stands for β = σ(beta).
//
// Nothing is kept for the backward but operands: `recur_dgrad` makes the states again, a run of 64 rows at a time.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef recur_dgrad, causal_conv_dgrad, log_decay_dgrad, gated_norm_dgrad;

std::vector<ValueId> trimmed(std::vector<ValueId> in) {
  while (in.back() == none) in.pop_back();
  return in;
}

// Operands of a recurrence, with q at `q`, and decay, beta and skip behind v.
struct Recurrence {
  Recurrence(const Rule& rule, const Op& op, size_t q)
      : h(op.attributes.integer("heads")),
        hk(op.attributes.integer("key_heads")),
        dk(op.attributes.integer("head_dim")),
        dv(op.attributes.integer("value_dim")) {
    const Attributes& a = op.attributes;
    rule.quotient(h, hk, "heads is not a multiple of key_heads");
    rule.require(dk >= 1 && dv >= 1 && a.integer("sequence") >= 1 && parts(op) >= 1, "a size is below one");
    const Dim rows = rule.dim(q, 0);
    rule.shape(q, {rows, fixed(hk * dk)});
    rule.shape(q + 1, {rows, fixed(hk * dk)});
    rule.shape(q + 2, {rows, fixed(h * dv)});
    const Dtype X = rule.dtype(q), A = wide(X);
    rule.require(rule.dtype(q + 1) == X && rule.dtype(q + 2) == X, "q, k and v are of several types");
    rule.require(a.has("slopes") == a.has("slope_heads"), "slopes and slope_heads come together");
    rule.require(!a.has("slopes") || !rule.has(q + 3), "slopes beside an operand decay");
    if (a.has("slopes")) rule.quotient(a.integer("slope_heads"), h, "slope_heads is not a multiple of heads");
    if (rule.has(q + 3)) {
      rule.require(rule.dtype(q + 3) == A, "decay is not of the wide type");
      rule.require(rule.in(q + 3).shape.size() == 2, "decay is no matrix");
      const bool by_head = rule.size(q + 3, 1) == h;
      rule.shape(q + 3, {rows, fixed(by_head ? h : h * dk)});
    }
    if (rule.has(q + 4)) {
      rule.require(rule.dtype(q + 4) == X || rule.dtype(q + 4) == A, "beta is neither of q's type nor wide");
      rule.shape(q + 4, {rows, fixed(h)});
    }
    if (rule.has(q + 5)) {
      rule.require(rule.dtype(q + 5) == A, "skip is not of the wide type");
      rule.shape(q + 5, {fixed(h * parts(op))});
    }
  }
  static int64_t parts(const Op& op) { return op.attributes.integer_or("parts", 1); }
  int64_t h, hk, dk, dv;
};

// Rows are whole sequences; `starts` are those of attention.
void check_sequences(const Rule& rule, const Op& op, size_t x) {
  const Dim& rows = rule.dim(x, 0);
  rule.require(rows.is_static() && rows.count % op.attributes.integer("sequence") == 0, "rows are not whole sequences");
  if (op.operand("starts") == none) return;
  const auto at = static_cast<size_t>(ir::place_of("starts", op.def->operands));
  rule.require(rule.dtype(at) == Dtype::i32, "starts are not i32");
  rule.shape(at, {rows});
}

void check_places(const Rule& rule, const Op& op, size_t x) {
  const auto at = static_cast<size_t>(ir::place_of("places", op.def->operands));
  rule.require(rule.dtype(at) == Dtype::i32, "places are not i32");
  rule.shape(at, {rule.dim(x, 0)});
}

// `products` of the size of a state for each row and head.
Cost recurrence_cost(const Listing& listing, const Op& op, const RowCounts& rows, ValueId q, double products) {
  const Attributes& a = op.attributes;
  Cost cost = operand_cost(listing, op, rows);
  cost.flops = 2.0 * products * rows_of(listing, q, rows) * static_cast<double>(a.integer("heads")) *
               static_cast<double>(a.integer("head_dim")) * static_cast<double>(a.integer("value_dim"));
  return cost;
}
double delta_of(const Op& op) { return op.attributes.integer("delta") != 0 ? 1 : 0; }

constexpr std::string_view kRecurrence =
    "heads key_heads head_dim value_dim sequence delta scale epsilon? sigmoid? slopes? slope_heads? parts?";

const OpDef recur{
    .kind = "recur",
    .operands = "q k v decay? beta? skip? starts?", .results = "o", .attributes = kRecurrence,
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Recurrence r(rule, op, 0);
      check_sequences(rule, op, 0);
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(r.h * r.dv)})};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> in{d_out[0]};
      std::vector<std::string> names;
      for (size_t i = 0; i < 7; ++i) in.push_back(operand(op, i));
      for (size_t i = 0; i < 6; ++i) {
        if (operand(op, i) != none) names.push_back(writer.d(op.in[i]));
      }
      const auto made = writer.input_gradient(recur_dgrad, trimmed(in), names, op.attributes);
      std::vector<ValueId> d(op.in.size(), none);
      size_t next = 0;
      for (size_t i = 0; i < 6 && i < op.in.size(); ++i) {
        if (op.in[i] != none) d[i] = made[next++];
      }
      if (const ValueId skip = operand(op, 5); skip != none) {
        writer.weight_gradient(find("accumulate"), {d[5]}, {skip});
        d[5] = none;
      }
      return d;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return recurrence_cost(listing, op, rows, op.in[0], 2 + delta_of(op));
    },
};

// It has a result for each of the first six operands that is there, in their order. The products of the forward pass up
// to the states come again. Those of dq, dk, du and dg follow, that of do with the state's gradient, and two more of the
// delta rule.
const OpDef recur_dgrad{
    .kind = "recur_dgrad",
    .operands = "do q k v decay? beta? skip? starts?", .results = "dq dk dv ddecay? dbeta? dskip?",
    .attributes = kRecurrence,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Recurrence r(rule, op, 1);
      check_sequences(rule, op, 1);
      rule.same(0, 3);
      std::vector<Value> out;
      for (size_t i = 1; i < 7; ++i) {
        if (rule.has(i)) out.push_back(output(rule.dtype(i), rule.in(i).shape));
      }
      return out;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return recurrence_cost(listing, op, rows, op.in[1], 6 + 3 * delta_of(op));
    },
};

// Rows that stand anywhere in sequences of S positions, as those of a cache (cache.cpp). The state of each sequence is
// that of the rows so far; the row at position 0 begins anew.
const OpDef cached_recur{
    .kind = "cached_recur",
    .operands = "q k v decay? beta? skip? places", .results = "o", .updates = "states",
    .attributes = kRecurrence,
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Recurrence r(rule, op, 0);
      check_places(rule, op, 0);
      const Value& states = rule.updated(0);
      rule.require(states.dtype == wide(rule.dtype(0)) && states.shape.size() == 2 &&
                       states.shape[1] == fixed(r.h * r.dk * r.dv),
                   "states are not rows of the wide type, one a sequence");
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(r.h * r.dv)})};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return recurrence_cost(listing, op, rows, op.in[0], 2 + delta_of(op));
    },
};

// x at `x`, then the weight and the bias.
void check_convolution(const Rule& rule, const Op& op, size_t x) {
  const int64_t channels = rule.size(x, 1) * op.attributes.integer_or("parts", 1);
  const Dtype A = wide(rule.dtype(x));
  rule.require(rule.dtype(x + 1) == A && (!rule.has(x + 2) || rule.dtype(x + 2) == A), "a weight is not wide");
  rule.require(rule.in(x + 1).shape.size() == 2 && rule.size(x + 1, 1) >= 1, "the weight is not [channels, kernel]");
  rule.shape(x + 1, {fixed(channels), rule.dim(x + 1, 1)});
  if (rule.has(x + 2)) rule.shape(x + 2, {fixed(channels)});
}

const OpDef causal_conv{
    .kind = "causal_conv",
    .operands = "x weight bias? starts?", .results = "y", .attributes = "sequence silu? parts?",
    .work = ir::Work::activation,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_convolution(rule, op, 0);
      check_sequences(rule, op, 0);
      return std::vector{rule.like(0)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], weight = op.in[1], bias = operand(op, 2);
      std::vector<std::string> names{writer.d(x), writer.d(weight)};
      if (bias != none) names.push_back(writer.d(bias));
      const auto made = writer.input_gradient(causal_conv_dgrad, trimmed({d_out[0], x, weight, bias, operand(op, 3)}),
                                              names, op.attributes);
      writer.weight_gradient(find("accumulate"), {made[1]}, {weight});
      if (bias != none) writer.weight_gradient(find("accumulate"), {made[2]}, {bias});
      std::vector<ValueId> d(op.in.size(), none);
      d[0] = made[0];
      return d;
    },
    .cost = operand_cost,
};

const OpDef causal_conv_dgrad{
    .kind = "causal_conv_dgrad",
    .operands = "dy x weight bias? starts?", .results = "dx dweight dbias?", .attributes = "sequence silu? parts?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.same(0, 1);
      check_convolution(rule, op, 1);
      check_sequences(rule, op, 1);
      std::vector<Value> out{rule.like(1), output(rule.dtype(2), rule.in(2).shape)};
      if (rule.has(3)) out.push_back(output(rule.dtype(3), rule.in(3).shape));
      return out;
    },
    .cost = operand_cost,
};

const OpDef cached_conv{
    .kind = "cached_conv",
    .operands = "x weight bias? places", .results = "y", .updates = "tails", .attributes = "sequence silu?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_convolution(rule, op, 0);
      check_places(rule, op, 0);
      const Value& tails = rule.updated(0);
      const int64_t kept = (rule.size(1, 1) - 1) * rule.size(0, 1);
      rule.require(tails.dtype == rule.dtype(0) && tails.shape.size() == 2 && tails.shape[1] == fixed(kept),
                   "tails are not the last rows of x, one run a sequence");
      return std::vector{rule.like(0)};
    },
    .cost = operand_cost,
};

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
}

const OpDef log_decay{
    .kind = "log_decay",
    .operands = "x a_log dt_bias?", .results = "decay step?", .attributes = "step? least? most?",
    .work = ir::Work::activation,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_log_decay(rule, op, 0);
      std::vector<Value> out{output(wide(rule.dtype(0)), rule.in(0).shape)};
      if (op.attributes.integer_or("step", 0) != 0) out.push_back(out[0]);
      return out;
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], a_log = op.in[1], bias = operand(op, 2);
      const ValueId d_step = d_out.size() > 1 ? d_out[1] : none;
      std::vector<std::string> names{writer.d(x), writer.d(a_log)};
      if (bias != none) names.push_back(writer.d(bias));
      Attributes limits;
      for (const char* name : {"least", "most"}) {
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
    .cost = operand_cost,
};

const OpDef log_decay_dgrad{
    .kind = "log_decay_dgrad",
    .operands = "x a_log dt_bias? ddecay? dstep?", .results = "dx da_log ddt_bias?", .attributes = "least? most?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_log_decay(rule, op, 0);
      for (const size_t i : {3, 4}) {
        if (!rule.has(i)) continue;
        rule.require(rule.dtype(i) == wide(rule.dtype(0)), "a gradient is not of the wide type");
        rule.shape(i, rule.in(0).shape);
      }
      std::vector<Value> out{rule.like(0), output(rule.dtype(1), rule.in(1).shape)};
      if (rule.has(2)) out.push_back(output(rule.dtype(2), rule.in(2).shape));
      return out;
    },
    .cost = operand_cost,
};

// The shape of rstd: a norm a run of columns.
ir::Shape check_gated_norm(const Rule& rule, const Op& op, size_t x) {
  rule.same(x, x + 1);
  const int64_t run = op.attributes.integer("run"), columns = rule.size(x, 1);
  rule.require(rule.in(x + 2).shape.size() == 1 && rule.dtype(x + 2) == wide(rule.dtype(x)),
               "the gain is not of the wide type");
  rule.quotient(columns, rule.size(x + 2, 0), "columns are not whole runs of the gain's width");
  return {rule.dim(x, 0), fixed(rule.quotient(columns, run, "columns are not whole runs"))};
}

const OpDef gated_norm{
    .kind = "gated_norm",
    .operands = "x gate g", .results = "y rstd", .attributes = "epsilon run gate_first? sigmoid?",
    .work = ir::Work::norm,
    .by_row = "x gate y rstd",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const ir::Shape norms = check_gated_norm(rule, op, 0);
      return std::vector{rule.like(0), output(wide(rule.dtype(0)), norms, Role::metadata)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      Attributes attributes = op.attributes;
      const auto made =
          writer.input_gradient(gated_norm_dgrad, {d_out[0], op.in[0], op.in[1], op.in[2], op.out[1]},
                                {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, attributes);
      writer.weight_gradient(find("accumulate"), {made[2]}, {op.in[2]});
      return std::vector{made[0], made[1], none};
    },
    .cost = operand_cost,
};

const OpDef gated_norm_dgrad{
    .kind = "gated_norm_dgrad",
    .operands = "dy x gate g rstd", .results = "dx dgate dg", .attributes = "epsilon run gate_first? sigmoid?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.same(0, 1);
      rule.shape(4, check_gated_norm(rule, op, 1));
      return std::vector{rule.like(1), rule.like(2), output(rule.dtype(3), rule.in(3).shape)};
    },
    .cost = operand_cost,
};

}  // namespace

std::vector<const OpDef*> recurrence_ops() {
  return {&recur,     &recur_dgrad,     &cached_recur, &causal_conv,     &causal_conv_dgrad,
          &cached_conv, &log_decay, &log_decay_dgrad, &gated_norm, &gated_norm_dgrad};
}

}  // namespace heddle::ops
