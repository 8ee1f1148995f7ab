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
//
// Where ranks share sequences (`ranks`), a rank's sequences of S rows are its two pieces of each (collective.cpp). What a
// piece makes of the state before it is affine: A·S + B. Each rank makes A and B of its pieces (`recur_summary`). Ranks
// then exchange them by heads, go through the pieces of their heads in order (`scan_states`), and send back the state
// before each piece, from which `recur` goes on. A piece's gradients need that of the state behind it. In reverse the
// same exchange makes it, from A and the gradient that each piece alone gives the state before it
// (`recur_states_dgrad`). Starts then count from a piece's first row, and are below zero in a document that began before.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef recur_dgrad, recur_states_dgrad, scan_states, causal_conv_dgrad, causal_conv_before_dgrad,
    rows_before, log_decay_dgrad, gated_norm_dgrad;

std::vector<ValueId> without_trailing_none(std::vector<ValueId> in) {
  while (in.back() == none) in.pop_back();
  return in;
}

// The place of an operand among those of the op's kind, and whether it is there.
size_t place_in(const Op& op, std::string_view name) {
  return static_cast<size_t>(ir::place_of(name, op.def->operands));
}
bool has_operand(const Op& op, std::string_view name) {
  return ir::place_of(name, op.def->operands) >= 0 && op.operand(name) != none;
}

// The sizes of a recurrence, and checks of the operands that its op has.
struct Recurrence {
  Recurrence(const Rule& rule, const Op& op)
      : h(op.attributes.integer("heads")),
        hk(op.attributes.integer("key_heads")),
        dk(op.attributes.integer("head_dim")),
        dv(op.attributes.integer("value_dim")),
        ranks(op.attributes.integer_or("ranks", 1)) {
    const Attributes& a = op.attributes;
    rule.quotient(h, hk, "heads is not a multiple of key_heads");
    rule.require(dk >= 1 && dv >= 1 && a.integer("sequence") >= 1 && parts(op) >= 1 && ranks >= 1,
                 "a size is below one");
    const size_t k = place_in(op, "k");
    const Dim rows = rule.dim(k, 0);
    const Dtype X = rule.dtype(k), A = wide(X);
    for (const auto& [name, width] : {std::pair{"q", hk * dk}, {"k", hk * dk}, {"v", h * dv}, {"do", h * dv}}) {
      if (!has_operand(op, name)) continue;
      rule.shape(place_in(op, name), {rows, fixed(width)});
      rule.require(rule.dtype(place_in(op, name)) == X, "q, k, v and do are of several types");
    }
    rule.require(a.has("slopes") == a.has("slope_heads"), "slopes and slope_heads come together");
    rule.require(!a.has("slopes") || !has_operand(op, "decay"), "slopes beside an operand decay");
    if (a.has("slopes")) rule.quotient(a.integer("slope_heads"), h, "slope_heads is not a multiple of heads");
    if (has_operand(op, "decay")) {
      const size_t decay = place_in(op, "decay");
      rule.require(rule.dtype(decay) == A, "decay is not of the wide type");
      rule.require(rule.in(decay).shape.size() == 2, "decay is no matrix");
      by_channel = rule.size(decay, 1) != h;
      rule.shape(decay, {rows, fixed(by_channel ? h * dk : h)});
    }
    if (has_operand(op, "beta")) {
      const Dtype beta = rule.dtype(place_in(op, "beta"));
      rule.require(beta == X || beta == A, "beta is neither of q's type nor wide");
      rule.shape(place_in(op, "beta"), {rows, fixed(h)});
    }
    if (has_operand(op, "skip")) {
      rule.require(rule.dtype(place_in(op, "skip")) == A, "skip is not of the wide type");
      rule.shape(place_in(op, "skip"), {fixed(h * parts(op))});
    }
    for (const char* name : {"states", "behind"}) {
      if (!has_operand(op, name)) continue;
      rule.require(rule.dtype(place_in(op, name)) == A, "states are not of the wide type");
      rule.shape(place_in(op, name), {fixed(pieces(op, rows)), fixed(all_heads() * dk * dv)});
    }
  }
  static int64_t parts(const Op& op) { return op.attributes.integer_or("parts", 1); }
  // Sequences, of which a rank has two pieces each where several share them.
  static int64_t pieces(const Op& op, const Dim& rows) { return rows.count / op.attributes.integer("sequence"); }
  // Heads of a state that ranks exchange by heads: rounded up, so that each has as many.
  int64_t all_heads() const { return (h + ranks - 1) / ranks * ranks; }
  int64_t h, hk, dk, dv, ranks;
  bool by_channel = false;
};

// Rows are whole sequences; `starts` are those of attention.
void check_sequences(const Rule& rule, const Op& op, size_t x) {
  const Dim& rows = rule.dim(x, 0);
  rule.require(rows.is_static() && rows.count % op.attributes.integer("sequence") == 0, "rows are not whole sequences");
  if (!has_operand(op, "starts")) return;
  rule.require(rule.dtype(place_in(op, "starts")) == Dtype::i32, "starts are not i32");
  rule.shape(place_in(op, "starts"), {rows});
}

void check_places(const Rule& rule, const Op& op, size_t x) {
  rule.require(rule.dtype(place_in(op, "places")) == Dtype::i32, "places are not i32");
  rule.shape(place_in(op, "places"), {rule.dim(x, 0)});
}

// `products` of the size of a state for each row and head.
Cost recurrence_cost(const Listing& listing, const Op& op, const RowCounts& rows, double products) {
  const Attributes& a = op.attributes;
  Cost cost = operand_cost(listing, op, rows);
  cost.flops = 2.0 * products * rows_of(listing, op.operand("k"), rows) * static_cast<double>(a.integer("heads")) *
               static_cast<double>(a.integer("head_dim")) * static_cast<double>(a.integer("value_dim"));
  return cost;
}
double delta_of(const Op& op) { return op.attributes.integer("delta") != 0 ? 1 : 0; }

// The exchange over the ranks that share sequences, each of which has two pieces of each (collective.cpp).
Attributes of_exchange(const Listing& listing, const Op& op, ValueId x) {
  const int64_t pieces = listing.value(x).shape[0].count / op.attributes.integer("sequence");
  return {{"ranks", op.attributes.integer("ranks")}, {"runs", pieces / 2}, {"zigzag", int64_t{1}}};
}

constexpr std::string_view kRecurrence =
    "heads key_heads head_dim value_dim sequence delta scale epsilon? sigmoid? slopes? slope_heads? parts? ranks?";

// With states it mentions the pieces' transitions, as scan_states has read them. What comes from states and goes to
// them has no gradient of its own: the rule has the gradients behind the pieces made, and gives them to the one op.
const OpDef recur{
    .kind = "recur",
    .operands = "q k v decay? beta? skip? starts? states?", .results = "o", .attributes = kRecurrence,
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Recurrence r(rule, op);
      check_sequences(rule, op, 0);
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(r.h * r.dv)})};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> in{d_out[0]};
      std::vector<std::string> names;
      for (size_t i = 0; i < 8; ++i) in.push_back(operand(op, i));
      for (size_t i = 0; i < 6; ++i) {
        if (operand(op, i) != none) names.push_back(writer.d(op.in[i]));
      }
      if (has_operand(op, "states")) {
        HEDDLE_CHECK(op.mentions.size() == 1, "'{}' has states without the transitions", op.kind());
        const ValueId of = op.operand("states");
        const auto exchange = of_exchange(writer.listing(), op, op.in[0]);
        writer.communicate_over("cp");
        const ValueId own = writer.input_gradient(
            recur_states_dgrad,
            without_trailing_none({d_out[0], op.in[0], op.in[1], operand(op, 3), operand(op, 4), op.operand("starts")}),
            {writer.d(of) + ".own"}, op.attributes)[0];
        const ValueId by_heads = writer.input_gradient(find("heads_to_sequence"), {own}, {writer.d(of) + ".heads"}, exchange)[0];
        const ValueId behind =
            writer.input_gradient(scan_states, {op.mentions[0], by_heads}, {writer.d(of) + ".behind_heads"},
                                  {{"heads", Recurrence(Rule(writer.listing(), op), op).all_heads() / op.attributes.integer("ranks")},
                                   {"pieces", 2 * op.attributes.integer("ranks")},
                                   {"head_dim", op.attributes.integer("head_dim")},
                                   {"value_dim", op.attributes.integer("value_dim")},
                                   {"reverse", int64_t{1}}})[0];
        in.push_back(writer.input_gradient(find("sequence_to_heads"), {behind}, {writer.d(of) + ".behind"}, exchange)[0]);
      }
      const auto made = writer.input_gradient(recur_dgrad, without_trailing_none(in), names, op.attributes);
      std::vector<ValueId> d(op.in.size() + op.mentions.size(), none);
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
      return recurrence_cost(listing, op, rows, 2 + delta_of(op));
    },
};

// It has a result for each of the first six operands that is there, in their order. The products of the forward pass up
// to the states come again. Those of dq, dk, du and dg follow, that of do with the state's gradient, and two more of the
// delta rule. `behind` are the gradients of the states behind the pieces.
const OpDef recur_dgrad{
    .kind = "recur_dgrad",
    .operands = "do q k v decay? beta? skip? starts? states? behind?", .results = "dq dk dv ddecay? dbeta? dskip?",
    .attributes = kRecurrence,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Recurrence r(rule, op);
      check_sequences(rule, op, 1);
      rule.same(0, 3);
      rule.require(has_operand(op, "states") == has_operand(op, "behind"), "states and the gradients behind them come together");
      std::vector<Value> out;
      for (size_t i = 1; i < 7; ++i) {
        if (rule.has(i)) out.push_back(output(rule.dtype(i), rule.in(i).shape));
      }
      return out;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return recurrence_cost(listing, op, rows, 6 + 3 * delta_of(op));
    },
};

// A piece makes transition · state + update of the state before it. The transition is a number a head or key
// channel, or by the delta rule a matrix. Heads beyond those that there are, up to all that ranks exchange, are zeros.
const OpDef recur_summary{
    .kind = "recur_summary",
    .operands = "k v decay? beta? starts?", .results = "transition update", .attributes = kRecurrence,
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Recurrence r(rule, op);
      check_sequences(rule, op, 0);
      const Dim pieces = fixed(Recurrence::pieces(op, rule.dim(0, 0)));
      const int64_t width = op.attributes.integer("delta") != 0 ? r.dk * r.dk : r.by_channel ? r.dk : 1;
      return std::vector{output(wide(rule.dtype(0)), {pieces, fixed(r.all_heads() * width)}, Role::metadata),
                         output(wide(rule.dtype(0)), {pieces, fixed(r.all_heads() * r.dk * r.dv)}, Role::metadata)};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      const double both = 1 + static_cast<double>(op.attributes.integer("head_dim")) /
                                  static_cast<double>(op.attributes.integer("value_dim"));
      return recurrence_cost(listing, op, rows, delta_of(op) != 0 ? 2 * both : 1);
    },
};

// The gradient of the states before the pieces, with nothing behind the pieces.
const OpDef recur_states_dgrad{
    .kind = "recur_states_dgrad",
    .operands = "do q k decay? beta? starts?", .results = "dstates", .attributes = kRecurrence,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Recurrence r(rule, op);
      check_sequences(rule, op, 0);
      return std::vector{output(wide(rule.dtype(0)), {fixed(Recurrence::pieces(op, rule.dim(0, 0))),
                                                      fixed(r.all_heads() * r.dk * r.dv)})};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return recurrence_cost(listing, op, rows, 1 + 2 * delta_of(op));
    },
};

// The states before the pieces of each sequence, from what each piece makes of one; reverse: the gradients behind the
// pieces, from those of the states before them. Pieces follow one another, so that the sums have one order.
const OpDef scan_states{
    .kind = "scan_states",
    .operands = "transition update", .results = "states", .attributes = "heads pieces head_dim value_dim reverse?",
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const Attributes& a = op.attributes;
      const int64_t h = a.integer("heads"), dk = a.integer("head_dim"), dv = a.integer("value_dim");
      const Dim rows = rule.dim(1, 0);
      rule.require(h >= 1 && dk >= 1 && dv >= 1 && a.integer("pieces") >= 1, "a size is below one");
      rule.require(rows.is_static() && rows.count % a.integer("pieces") == 0, "rows are not whole sequences of pieces");
      rule.shape(1, {rows, fixed(h * dk * dv)});
      rule.require(rule.dtype(0) == rule.dtype(1), "transition and update differ in type");
      const int64_t width = rule.quotient(rule.size(0, 1), h, "transitions are not of all heads");
      rule.require(width == 1 || width == dk || width == dk * dk, "a transition is no number, row or matrix");
      rule.shape(0, {rows, fixed(h * width)});
      const bool reverse = a.integer_or("reverse", 0) != 0;
      return std::vector{output(rule.dtype(1), rule.in(1).shape, reverse ? Role::activation : Role::metadata)};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      const Attributes& a = op.attributes;
      Cost cost = operand_cost(listing, op, rows);
      const double dk = static_cast<double>(a.integer("head_dim"));
      if (columns_of(listing, op.in[0]) >= static_cast<double>(a.integer("heads")) * dk * dk)
        cost.flops = 2.0 * dk * rows_of(listing, op.in[1], rows) * columns_of(listing, op.in[1]);
      return cost;
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
      const Recurrence r(rule, op);
      check_places(rule, op, 0);
      const Value& states = rule.updated(0);
      rule.require(states.dtype == wide(rule.dtype(0)) && states.shape.size() == 2 &&
                       states.shape[1] == fixed(r.h * r.dk * r.dv),
                   "states are not rows of the wide type, one a sequence");
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(r.h * r.dv)})};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return recurrence_cost(listing, op, rows, 2 + delta_of(op));
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
  const int64_t taps = rule.size(x + 1, 1) - 1, S = op.attributes.integer("sequence");
  const Dim& rows = rule.dim(x, 0);
  if (has_operand(op, "before")) {
    rule.require(rule.dtype(place_in(op, "before")) == rule.dtype(x), "the rows before are not of x's type");
    rule.shape(place_in(op, "before"), {fixed(rows.count / S * taps), rule.dim(x, 1)});
  }
  if (!has_operand(op, "behind")) return;
  rule.require(rule.dtype(place_in(op, "behind")) == A, "gradients from behind are not wide");
  rule.shape(place_in(op, "behind"), {fixed(rows.count / S * std::min(taps, S)), rule.dim(x, 1)});
}

const OpDef causal_conv{
    .kind = "causal_conv",
    .operands = "x weight bias? starts? before?", .results = "y", .attributes = "sequence silu? parts? ranks?",
    .work = ir::Work::activation,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_convolution(rule, op, 0);
      check_sequences(rule, op, 0);
      return std::vector{rule.like(0)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], weight = op.in[1], bias = operand(op, 2), before = op.operand("before");
      std::vector<std::string> names{writer.d(x), writer.d(weight)};
      if (bias != none) names.push_back(writer.d(bias));
      std::vector<ValueId> in{d_out[0], x, weight, bias, operand(op, 3), before};
      if (before != none) {
        const int64_t taps = writer.listing().value(weight).shape[1].count - 1, S = op.attributes.integer("sequence");
        writer.communicate_over("cp");
        const ValueId own =
            writer.input_gradient(causal_conv_before_dgrad, in, {writer.d(before)}, op.attributes)[0];
        const ValueId all = writer.input_gradient(find("all_gather"), {own}, {writer.d(before) + ".sequence"},
                                                  of_exchange(writer.listing(), op, x))[0];
        in.push_back(writer.input_gradient(rows_before, {all}, {writer.d(x) + ".behind"},
                                           {{"ranks", op.attributes.integer("ranks")},
                                            {"rows", std::min(taps, S)},
                                            {"count", taps},
                                            {"reverse", int64_t{1}}})[0]);
      }
      const auto made = writer.input_gradient(causal_conv_dgrad, without_trailing_none(in), names, op.attributes);
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
    .operands = "dy x weight bias? starts? before? behind?", .results = "dx dweight dbias?",
    .attributes = "sequence silu? parts? ranks?",
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

// It reads the first rows of each piece alone.
Cost cost_of_ends(const Listing& listing, const Op& op, const RowCounts& rows) {
  Cost cost;
  cost.bytes = 3.0 * static_cast<double>(listing.bytes(op.out[0], rows));
  return cost;
}

// The gradient of the rows before each piece, wide: the next op adds it to that of the rows themselves.
const OpDef causal_conv_before_dgrad{
    .kind = "causal_conv_before_dgrad",
    .operands = "dy x weight bias? starts? before", .results = "dbefore", .attributes = "sequence silu? parts? ranks?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.same(0, 1);
      check_convolution(rule, op, 1);
      check_sequences(rule, op, 1);
      return std::vector{output(wide(rule.dtype(1)), rule.in(5).shape)};
    },
    .cost = cost_of_ends,
};

const OpDef piece_ends{
    .kind = "piece_ends",
    .operands = "x", .results = "y", .attributes = "sequence count",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const int64_t S = op.attributes.integer("sequence"), count = op.attributes.integer("count");
      check_sequences(rule, op, 0);
      rule.require(count >= 0 && count <= S, "a sequence has not so many rows");
      Value v = rule.like(0);
      v.shape[0] = fixed(rule.dim(0, 0).count / S * count);
      v.role = Role::metadata;
      return std::vector{std::move(v)};
    },
    .cost = cost_of_ends,
};

// x has the last n rows of all pieces, or, reverse, gradients of the rows before all pieces.
const OpDef rows_before{
    .kind = "rows_before",
    .operands = "x", .results = "y", .attributes = "ranks rows count reverse?",
    .replayable = false,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
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
    },
    .cost = cost_of_ends,
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
      const auto made = writer.input_gradient(log_decay_dgrad, without_trailing_none({x, a_log, bias, d_out[0], d_step}), names,
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
  return {&recur,
          &recur_dgrad,
          &recur_summary,
          &recur_states_dgrad,
          &scan_states,
          &cached_recur,
          &causal_conv,
          &causal_conv_dgrad,
          &causal_conv_before_dgrad,
          &piece_ends,
          &rows_before,
          &cached_conv,
          &log_decay,
          &log_decay_dgrad,
          &gated_norm,
          &gated_norm_dgrad};
}

}  // namespace heddle::ops
