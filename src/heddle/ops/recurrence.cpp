// Recurrences along the sequence: linear attention with decay, state-space models and delta rules are one op. The
// ops around it are in convolution.cpp.
//
// T rows are whole sequences of S rows. Each of h value heads has a state: a matrix of dk × dv numbers of the wide
// type. It is zero where a document begins.
//   S_t = exp(g_t)·S_{t−1} + β_t·k_t·u_tᵀ,  u_t = v_t or, by the delta rule, v_t − (exp(g_t)·S_{t−1})ᵀ k_t
//   o_t = scale·S_tᵀ q_t + skip·v_t
// hk key heads have q and k; value head j reads those of key head j ÷ (h/hk). The logarithm g of the decay is a
// number a head (Mamba-2, arXiv 2405.21060; Gated DeltaNet, arXiv 2412.06464) or one a key channel (Kimi Linear,
// arXiv 2510.26692). With `slopes` f it is the constant −f·m_j, with the slopes m_j of ALiBi (arXiv 2108.12409)
// over slope_heads heads (lightning attention, arXiv 2401.04658). With `epsilon` each head's q and k become x·(Σx²
// + ε)^−½. With `sigmoid` m the operand beta stands for β = m·σ(beta), m of 1 or 2.
//
// Nothing is kept for the backward but operands: `recur_dgrad` makes the states again, a run of 64 rows at a time.
//
// Where ranks share sequences (`ranks`), a rank's sequences of S rows are its two pieces of each (collective.cpp).
// A piece maps the state before it by an affine function, A·S + B. Each rank makes A and B of its pieces
// (`recur_summary`). Ranks then exchange them by heads, go through the pieces of their heads in order
// (`scan_states`), and send back the state before each piece, from which `recur` goes on. A piece's gradients need
// that of the state behind it. In reverse the same exchange makes it, from A and the gradient that each piece alone
// gives the state before it
// (`recur_states_dgrad`). Starts then count from a piece's first row, and are below zero in a document that began
// before.
#include "heddle/ops/recurrence.h"

#include "heddle/ops/ops.h"

namespace heddle::ops {

namespace {

extern const OpDef recur_dgrad, recur_states_dgrad, scan_states;

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
    const size_t k = rule.place("k");
    const Dim rows = rule.dim(k, 0);
    const Dtype X = rule.dtype(k), A = wide(X);
    for (const auto& [name, width] : {std::pair{"q", hk * dk}, {"k", hk * dk}, {"v", h * dv}, {"do", h * dv}}) {
      if (!rule.has(name)) continue;
      rule.shape(rule.place(name), {rows, fixed(width)});
      rule.require(rule.dtype(rule.place(name)) == X, "q, k, v and do are of several types");
    }
    rule.require(a.has("slopes") == a.has("slope_heads"), "slopes and slope_heads come together");
    rule.require(!a.has("slopes") || !rule.has("decay"), "slopes beside an operand decay");
    if (a.has("slopes")) rule.quotient(a.integer("slope_heads"), h, "slope_heads is not a multiple of heads");
    if (rule.has("decay")) {
      const size_t decay = rule.place("decay");
      rule.require(rule.dtype(decay) == A, "decay is not of the wide type");
      rule.require(rule.in(decay).shape.size() == 2, "decay is no matrix");
      by_channel = rule.size(decay, 1) != h;
      rule.shape(decay, {rows, fixed(by_channel ? h * dk : h)});
    }
    if (rule.has("beta")) {
      const Dtype beta = rule.dtype(rule.place("beta"));
      rule.require(beta == X || beta == A, "beta is neither of q's type nor wide");
      rule.shape(rule.place("beta"), {rows, fixed(h)});
    }
    if (rule.has("skip")) {
      rule.require(rule.dtype(rule.place("skip")) == A, "skip is not of the wide type");
      rule.shape(rule.place("skip"), {fixed(h * parts(op))});
    }
    for (const char* name : {"states", "behind"}) {
      if (!rule.has(name)) continue;
      rule.require(rule.dtype(rule.place(name)) == A, "states are not of the wide type");
      rule.shape(rule.place(name), {fixed(pieces(op, rows)), fixed(all_heads() * dk * dv)});
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

// `products` of the size of a state for each row and head.
Cost cost_of_states(const Listing& listing, const Op& op, const RowCounts& rows, double products) {
  const Attributes& a = op.attributes;
  Cost cost = operand_cost(listing, op, rows);
  cost.flops = 2.0 * products * rows_of(listing, op.operand("k"), rows) * static_cast<double>(a.integer("heads")) *
               static_cast<double>(a.integer("head_dim")) * static_cast<double>(a.integer("value_dim"));
  return cost;
}
double delta_of(const Op& op) { return op.attributes.integer("delta") != 0 ? 1 : 0; }
// So many products, and more by the delta rule.
template <int products, int more>
Cost recurrence_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  return cost_of_states(listing, op, rows, products + more * delta_of(op));
}

constexpr std::string_view kRecurrence =
    "heads key_heads head_dim value_dim sequence delta scale epsilon? sigmoid? slopes? slope_heads? parts? ranks?";

// clang-format off
// With states it mentions the pieces' transitions, as scan_states has read them. What comes from states and goes to
// them has no gradient of its own: the rule has the gradients behind the pieces made, and gives them to the one op.
const OpDef recur{
    .kind = "recur",
    .operands = "q k v decay? beta? skip? starts? states?", .results = "o", .attributes = kRecurrence,
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Recurrence r(rule, op);
      check_sequences(rule, op, 0);
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(r.h * r.dv)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> in{d_out[0]};
      std::vector<std::string> names;
      for (size_t i = 0; i < 8; ++i) in.push_back(operand(op, i));
      for (size_t i = 0; i < 6; ++i) {
        if (operand(op, i) != none) names.push_back(writer.d(op.in[i]));
      }
      if (op.operand("states") != none) {
        HEDDLE_CHECK(op.mentions.size() == 1, "'{}' has states without the transitions", op.kind());
        const ValueId of = op.operand("states");
        const auto exchange = exchange_of_pieces(writer.listing(), op, op.in[0]);
        writer.communicate_over("cp");
        const ValueId own = writer.input_gradient(
            recur_states_dgrad,
            trimmed({d_out[0], op.in[0], op.in[1], operand(op, 3), operand(op, 4), op.operand("starts")}),
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
      const auto made = writer.input_gradient(recur_dgrad, trimmed(in), names, op.attributes);
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
    .cost = recurrence_cost<2, 1>,
};

// It has a result for each of the first six operands that is there, in their order. The products of the forward pass up
// to the states come again. Those of dq, dk, du and dg follow, that of do with the state's gradient, and two more of the
// delta rule. `behind` are the gradients of the states behind the pieces.
const OpDef recur_dgrad{
    .kind = "recur_dgrad",
    .operands = "do q k v decay? beta? skip? starts? states? behind?", .results = "dq dk dv ddecay? dbeta? dskip?",
    .attributes = kRecurrence,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Recurrence r(rule, op);
      check_sequences(rule, op, 1);
      rule.same(0, 3);
      rule.require(rule.has("states") == rule.has("behind"), "states and the gradients behind them come together");
      std::vector<Value> out;
      for (size_t i = 1; i < 7; ++i) {
        if (rule.has(i)) out.push_back(output(rule.dtype(i), rule.in(i).shape));
      }
      return out;
    }),
    .cost = recurrence_cost<6, 3>,
};

// A piece makes transition · state + update of the state before it. The transition is a number a head or key
// channel, or by the delta rule a matrix. Heads beyond those that there are, up to all that ranks exchange, are zeros.
const OpDef recur_summary{
    .kind = "recur_summary",
    .operands = "k v decay? beta? starts?", .results = "transition update", .attributes = kRecurrence,
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Recurrence r(rule, op);
      check_sequences(rule, op, 0);
      const Dim pieces = fixed(Recurrence::pieces(op, rule.dim(0, 0)));
      const int64_t width = op.attributes.integer("delta") != 0 ? r.dk * r.dk : r.by_channel ? r.dk : 1;
      return std::vector{output(wide(rule.dtype(0)), {pieces, fixed(r.all_heads() * width)}, Role::metadata),
                         output(wide(rule.dtype(0)), {pieces, fixed(r.all_heads() * r.dk * r.dv)}, Role::metadata)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      const double both = 1 + static_cast<double>(op.attributes.integer("head_dim")) /
                                  static_cast<double>(op.attributes.integer("value_dim"));
      return cost_of_states(listing, op, rows, delta_of(op) != 0 ? 2 * both : 1);
    },
};

// The gradient of the states before the pieces, with nothing behind the pieces.
const OpDef recur_states_dgrad{
    .kind = "recur_states_dgrad",
    .operands = "do q k decay? beta? starts?", .results = "dstates", .attributes = kRecurrence,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Recurrence r(rule, op);
      check_sequences(rule, op, 0);
      return std::vector{output(wide(rule.dtype(0)), {fixed(Recurrence::pieces(op, rule.dim(0, 0))),
                                                      fixed(r.all_heads() * r.dk * r.dv)})};
    }),
    .cost = recurrence_cost<1, 2>,
};

// The states before the pieces of each sequence, from what each piece makes of one; reverse: the gradients behind the
// pieces, from those of the states before them. Pieces follow one another, so that the sums have one order.
const OpDef scan_states{
    .kind = "scan_states",
    .operands = "transition update", .results = "states", .attributes = "heads pieces head_dim value_dim reverse?",
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
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
    }),
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
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Recurrence r(rule, op);
      check_places(rule, rule.place("places"));
      const Value& states = rule.updated(0);
      rule.require(states.dtype == wide(rule.dtype(0)) && states.shape.size() == 2 &&
                       states.shape[1] == fixed(r.h * r.dk * r.dv),
                   "states are not rows of the wide type, one a sequence");
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(r.h * r.dv)})};
    }),
    .cost = recurrence_cost<2, 1>,
};
// clang-format on

}  // namespace

void check_sequences(const Rule& rule, const Op& op, size_t x) {
  const Dim& rows = rule.dim(x, 0);
  rule.require(rows.is_static() && rows.count % op.attributes.integer("sequence") == 0,
               "rows are not whole sequences");
  if (rule.has("starts")) rule.is(rule.place("starts"), Dtype::i32, {rows}, "starts are not i32");
}

Attributes exchange_of_pieces(const Listing& listing, const Op& op, ValueId x) {
  const int64_t pieces = listing.value(x).shape[0].count / op.attributes.integer("sequence");
  return {{"ranks", op.attributes.integer("ranks")}, {"runs", pieces / 2}, {"zigzag", int64_t{1}}};
}

std::vector<const OpDef*> recurrence_ops() {
  return {&recur, &recur_dgrad, &recur_summary, &recur_states_dgrad, &scan_states, &cached_recur};
}

}  // namespace heddle::ops
