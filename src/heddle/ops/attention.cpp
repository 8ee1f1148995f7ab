// Attention per sequence and head, causal or not, with grouped key/value heads (FlashAttention-2, arXiv
// 2307.08691). h query heads of d elements, hk key/value heads, dv value elements; U = B·S/cp query rows.
//
// With cp > 1 the queries are this rank's share of each sequence. The keys are either the whole sequences, in order
// (`attention`), or one rank's share at a time, as they come round the ring (Ring Attention, arXiv 2310.01889).
// With `inner` they go round rings of so many ranks, from one to the next (Double-Ring-Attention, 2406.18485).
// Each `attention_part` joins its keys to o and lse of the parts before, in the wide type; `attention_finish`
// rounds o. Only the last o and lse are needed for gradients, so the rule stands with `attention_finish`, which
// mentions q and the keys and values of all parts. It writes one `attention_part_dgrad` a part, the last part
// first; their dk and dv travel back by the rule of `ring_shift`.
//
// A causal query sees at most the `window` last keys up to its own (Longformer, arXiv 2004.05150; Mistral,
// 2310.06825). Where windows are chunks of the sequence, `chunk` is as long, and starts say where they begin; it
// only counts work. With `starts` it sees none before starts[its position], where its document begins in the packed
// sequence. Sinks are a learned logit a head that takes part in the softmax and has no value (arXiv 2309.17453;
// GPT-OSS). Lse holds them, so the gradients of q, k and v need nothing of them. Their own is −Σ exp(sink −
// lse)·(do·o).
//
// With `rate`, probabilities are dropped behind the softmax (Vaswani et al., 1706.03762): o is the sum of
// p·v ÷ (1 − rate) over the keys that are kept, lse that of all. The choice is a pure function of the query's
// token, the head and the key's position (kernels/dropped_keys.h). So the backward makes it again, and any cut of a
// sequence makes the same.
#include <cmath>

#include "heddle/ir/axes.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef attention_dgrad, attention_part_dgrad, attention_sinks_wgrad;

// Pairs of a query in [q, q + rows) and a key in [k, k + rows) of one sequence that a window lets meet. Where
// windows and keys overlap is a sum of four ramps, and a ramp's sum over the queries a difference of two triangles.
double pairs_in_window(double q, double k, double rows, double window) {
  const auto triangle = [](double n) { return n > 0 ? n * (n + 1) / 2 : 0.0; };
  const auto ramp = [&](double from) { return triangle(q + rows - from) - triangle(q - from); };
  return ramp(k) - ramp(k + rows) - ramp(k + window) + ramp(k + rows + window);
}

// The share of the keys in windows that chunks of the same length leave, over a whole sequence.
double part_in_chunks(double length, double chunk) {
  const auto triangle = [](double n) { return n * (n + 1) / 2; };
  const double whole = std::floor(length / chunk), rest = length - whole * chunk;
  return (whole * triangle(chunk) + triangle(rest)) / pairs_in_window(0, 0, length, chunk);
}

// Keys that a query sees in a window, a mean over all queries; in a turn of the ring over those of all ranks.
double seen_in_window(const Attributes& a) {
  const double length = static_cast<double>(a.integer("sequence")),
               window = static_cast<double>(a.integer("window"));
  const int64_t cp = a.integer_or("cp", 1);
  if (!a.has("turn") || cp == 1) return pairs_in_window(0, 0, length, window) / length;
  const double chunk = length / static_cast<double>(2 * cp);
  double pairs = 0;
  for (int64_t rank = 0; rank < cp; ++rank) {
    const int64_t owner = ir::owner_in_turn(rank, a.integer("turn"), cp, a.integer_or("inner", 1));
    for (const int64_t q : {rank, 2 * cp - 1 - rank}) {
      for (const int64_t k : {owner, 2 * cp - 1 - owner}) {
        pairs += pairs_in_window(static_cast<double>(q) * chunk, static_cast<double>(k) * chunk, chunk, window);
      }
    }
  }
  return pairs / length;
}

// Multiply-adds of the scores of a sequence that are seen, for one product of width 1 over all heads, doubled. The
// chunks of cp ranks are chosen so that all have equal shares.
double score_flops(const Listing& listing, const Op& op, ValueId q, const RowCounts& rows) {
  const double length = static_cast<double>(op.attributes.integer("sequence"));
  const double cp = static_cast<double>(op.attributes.integer_or("cp", 1));
  double visible = op.attributes.integer("causal") ? (length + 1) / 2 : length;
  if (op.attributes.integer_or("window", 0) > 0) {
    visible = seen_in_window(op.attributes);
    if (const int64_t chunk = op.attributes.integer_or("chunk", 0); chunk > 0)
      visible *= part_in_chunks(length, static_cast<double>(chunk));
  } else if (op.attributes.has("turn") && cp > 1) {
    // Its own keys: a triangle of S/cp; any other's: half of all pairs.
    const double own = length / cp;
    visible = !op.attributes.integer("causal") ? own : op.attributes.integer("turn") == 0 ? (own + 1) / 2 : own / 2;
  }
  return 2.0 * rows_of(listing, q, rows) * visible * static_cast<double>(op.attributes.integer("heads"));
}

// q at operand 0: shapes of q, k, v; then o and lse.
std::pair<Dim, Dim> check_heads(const Rule& rule, const Attributes& a, size_t q, bool whole_keys) {
  const int64_t length = a.integer("sequence"), cp = a.integer_or("cp", 1);
  rule.require(cp >= 1 && length >= 1, "a size is below one");
  rule.require(cp == 1 || length % (2 * cp) == 0, "a sequence is not 2·cp equal chunks");
  const Dim queries = rule.dim(q, 0);
  rule.require(queries.is_static() && queries.count % (length / cp) == 0, "rows are not whole sequences");
  rule.quotient(a.integer("heads"), a.integer("kv_heads"), "heads is not a multiple of kv_heads");
  const Dim keys = fixed(whole_keys ? queries.count * cp : queries.count);
  rule.shape(q, {queries, fixed(a.integer("heads") * a.integer("head_dim"))});
  rule.shape(q + 1, {keys, fixed(a.integer("kv_heads") * a.integer("head_dim"))});
  rule.shape(q + 2, {keys, fixed(a.integer("kv_heads") * a.integer("value_dim"))});
  return {queries, fixed(a.integer("heads") * a.integer("value_dim"))};
}

// Checks what narrows the keys that a query sees, and the sinks: operands and attributes of all five.
void check_mask(const Rule& rule, const Op& op) {
  const Attributes& a = op.attributes;
  const ValueId starts = op.operand("starts");
  const int64_t window = a.integer_or("window", 0);
  rule.require(window >= 0, "a window is less than nothing");
  rule.require((window == 0 && starts == none) || a.integer("causal") != 0,
               "a window and starts are of causal attention");
  if (starts == none) return;
  const auto q = static_cast<size_t>(std::max(0, ir::place_of("q", op.def->operands)));
  rule.is(rule.place("starts"), Dtype::i32, {fixed(rule.dim(q, 0).count * a.integer_or("cp", 1))},
          "starts are not i32");
}
void check_sinks(const Rule& rule, const Op& op, Dtype A) {
  if (op.operand("sinks") == none) return;
  rule.is(rule.place("sinks"), A,
          {fixed(op.attributes.integer("heads") * op.attributes.integer_or("sink_parts", 1))},
          "sinks are not of the wide type");
}

// Checks what dropout draws from: the token in the whole batch of each query row, and the key of the step.
void check_dropped(const Rule& rule, const Op& op) {
  const ValueId tokens = op.operand("tokens"), key = op.operand("key");
  rule.require(op.attributes.has("rate") == (tokens != none) && (tokens == none) == (key == none),
               "rate, tokens and key come together");
  if (tokens == none) return;
  const double rate = op.attributes.number("rate");
  rule.require(rate > 0 && rate < 1, "rate is not in (0, 1)");
  const size_t at = rule.place("tokens");
  const auto q = static_cast<size_t>(std::max(0, ir::place_of("q", op.def->operands)));
  rule.require(rule.dtype(at) == Dtype::i32 && rule.dtype(at + 1) == Dtype::i32, "counters are not i32");
  rule.shape(at, {rule.dim(q, 0)});
  rule.shape(at + 1, {fixed(3)});
}

// Operands that a gradient has too, behind those of its own; what is absent at the end is left out.
std::vector<ValueId> followed_by_masks(std::vector<ValueId> in, const Op& op) {
  for (const char* name : {"starts", "tokens", "key"}) in.push_back(op.operand(name));
  return trimmed(std::move(in));
}

void sinks_gradient(GradientWriter& writer, const Op& op, ValueId d_o, ValueId o, ValueId lse) {
  const ValueId sinks = op.operand("sinks");
  if (sinks == none) return;
  writer.weight_gradient(
      attention_sinks_wgrad, {d_o, o, lse, sinks}, {sinks},
      {{"heads", op.attributes.integer("heads")}, {"sink_parts", op.attributes.integer_or("sink_parts", 1)}});
}

double forward_widths(const Op& op) {
  return static_cast<double>(op.attributes.integer("head_dim") + op.attributes.integer("value_dim"));
}
// q kᵀ again, do vᵀ, pᵀ do, ds k, dsᵀ q: three products of the head's width and two of the value's.
double backward_widths(const Op& op) {
  return 3.0 * static_cast<double>(op.attributes.integer("head_dim")) +
         2.0 * static_cast<double>(op.attributes.integer("value_dim"));
}

// Gradients find the sinks in lse.
Attributes of_gradient(const Op& op) {
  Attributes attributes;
  for (const auto& [name, item] : op.attributes.items()) {
    if (name != "sink_parts") attributes.set(name, item);
  }
  return attributes;
}

// clang-format off
const OpDef attention{
    .kind = "attention",
    .operands = "q k v starts? sinks? tokens? key?", .results = "o lse",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? rank? window? chunk? sink_parts? rate? site? head_parts? cap?",
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const auto [rows, columns] = check_heads(rule, op.attributes, 0, true);
      check_mask(rule, op);
      check_sinks(rule, op, wide(rule.dtype(0)));
      check_dropped(rule, op);
      return std::vector{output(rule.dtype(0), {rows, columns}),
                         output(wide(rule.dtype(0)), {rows, fixed(op.attributes.integer("heads"))}, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      sinks_gradient(writer, op, d_out[0], op.out[0], op.out[1]);
      const std::vector<ValueId> in =
          followed_by_masks({d_out[0], op.in[0], op.in[1], op.in[2], op.out[0], op.out[1]}, op);
      std::vector<ValueId> d = writer.input_gradient(
          attention_dgrad, in, {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, of_gradient(op));
      d.resize(op.in.size(), none);
      return d;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[0], rows) * forward_widths(op);
      return cost;
    },
};

const OpDef attention_dgrad{
    .kind = "attention_dgrad",
    .operands = "do q k v o lse starts? tokens? key?", .results = "dq dk dv",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? rank? window? chunk? rate? site? head_parts? cap?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_mask(rule, op);
      check_dropped(rule, op);
      return std::vector{rule.like(1), rule.like(2),
                         rule.like(3)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[1], rows) * backward_widths(op);
      return cost;
    },
};

const OpDef attention_part{
    .kind = "attention_part",
    .operands = "q k v o_before? lse_before? starts? sinks? tokens? key?", .results = "o lse",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? turn inner? window? chunk? sink_parts? rate? site? head_parts? cap?",
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const auto [rows, columns] = check_heads(rule, op.attributes, 0, false);
      const Dtype A = wide(rule.dtype(0));
      check_mask(rule, op);
      check_sinks(rule, op, A);
      check_dropped(rule, op);
      rule.require(!rule.has(3) || !rule.has(6), "sinks come with the first part alone");
      const std::vector out{output(A, {rows, columns}, Role::metadata),
                            output(A, {rows, fixed(op.attributes.integer("heads"))}, Role::metadata)};
      rule.require(rule.has(3) == rule.has(4), "o and lse of the parts before come together");
      for (size_t i = 0; i < 2 && rule.has(3); ++i) {
        rule.shape(3 + i, out[i].shape);
        rule.require(rule.dtype(3 + i) == A, "o and lse of the parts before are not wide");
      }
      return out;
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[0], rows) * forward_widths(op);
      return cost;
    },
};

// Mentions: lse, q, then k and v of each part. It reads starts and sinks for its gradient only.
const OpDef attention_finish{
    .kind = "attention_finish",
    .operands = "o starts? sinks? tokens? key?", .results = "y",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? turn? inner? window? chunk? sink_parts? rate? site? head_parts? cap?",
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.require(op.mentions.size() >= 4 && op.mentions.size() % 2 == 0, "mentions are not lse, q and pairs of k, v");
      check_mask(rule, op);
      check_sinks(rule, op, rule.dtype(0));
      check_dropped(rule, op);
      return std::vector{output(listing.value(op.mentions[1]).dtype, rule.in(0).shape)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId lse = op.mentions[0], q = op.mentions[1];
      const size_t of_mentions = op.in.size();
      std::vector<ValueId> gradients(of_mentions + op.mentions.size(), none);
      const size_t parts = (op.mentions.size() - 2) / 2;
      sinks_gradient(writer, op, d_out[0], op.out[0], lse);
      ValueId dq = none;
      for (size_t part = parts; part-- > 0;) {
        const ValueId k = op.mentions[2 + 2 * part], v = op.mentions[3 + 2 * part];
        Attributes attributes = of_gradient(op);
        attributes.set("turn", static_cast<int64_t>(part)).set("last", int64_t{part == 0});
        const std::vector<ValueId> in = followed_by_masks({d_out[0], q, k, v, op.out[0], lse, dq}, op);
        const auto d = writer.input_gradient(attention_part_dgrad, in, {writer.d(q), writer.d(k), writer.d(v)},
                                             attributes);
        dq = d[0];
        gradients[of_mentions + 2 + 2 * part] = d[1];
        gradients[of_mentions + 3 + 2 * part] = d[2];
      }
      gradients[of_mentions + 1] = dq;
      return gradients;
    },
};

const OpDef attention_part_dgrad{
    .kind = "attention_part_dgrad",
    .operands = "do q k v o lse dq_before? starts? tokens? key?", .results = "dq dk dv",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? turn last inner? window? chunk? rate? site? head_parts? cap?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_heads(rule, op.attributes, 1, false);
      check_mask(rule, op);
      check_dropped(rule, op);
      Value dq = rule.like(1);
      if (op.attributes.integer("last") == 0) dq.dtype = wide(dq.dtype);
      if (rule.has(6)) {
        rule.shape(6, dq.shape);
        rule.require(rule.dtype(6) == wide(rule.dtype(1)), "the sum of dq is not wide");
      }
      return std::vector{dq, rule.like(2), rule.like(3)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[1], rows) * backward_widths(op);
      return cost;
    },
};

const OpDef attention_sinks_wgrad{
    .kind = "attention_sinks_wgrad",
    .operands = "do o lse sinks", .updates = "acc", .attributes = "heads sink_parts?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_sinks(rule, op, wide(rule.dtype(0)));
      rule.shape(2, {rule.dim(0, 0), fixed(op.attributes.integer("heads"))});
      rule.require(rule.updated(0).shape == rule.in(3).shape, "acc is not of the sinks' shape");
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> attention_ops() {
  return {&attention,        &attention_dgrad,      &attention_part, &attention_part_dgrad,
          &attention_finish, &attention_sinks_wgrad};
}

}  // namespace heddle::ops
