// Attention per sequence and head, causal or not, with grouped key/value heads (FlashAttention-2, arXiv 2307.08691).
// h query heads of d elements, hk key/value heads, dv value elements; U = B·S/cp query rows.
//
// With cp > 1 the queries are this rank's share of each sequence. The keys are either the whole sequences, in order
// (`attention`), or one rank's share at a time, as they come round the ring (Ring Attention, arXiv 2310.01889): each
// `attention_part` joins its keys to o and lse of the parts before, in the wide type; `attention_finish` rounds o. Only
// the last o and lse are needed for gradients, so the rule stands with `attention_finish`, which mentions q and the keys
// and values of all parts: it writes one `attention_part_dgrad` a part, the last part first, whose dk and dv travel back
// by the rule of `ring_shift`.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef attention_dgrad, attention_part_dgrad;

// Multiply-adds of the scores of a sequence that are seen, for one product of width 1 over all heads, doubled. The
// chunks of cp ranks are chosen so that all have equal shares.
double score_flops(const Listing& listing, const Op& op, ValueId q, const RowCounts& rows) {
  const double length = static_cast<double>(op.attributes.integer("sequence"));
  const double cp = static_cast<double>(op.attributes.integer_or("cp", 1));
  double visible = op.attributes.integer("causal") ? (length + 1) / 2 : length;
  if (op.attributes.has("turn") && cp > 1) {
    // Its own keys: a triangle of S/cp; any other's: half of all pairs.
    const double own = length / cp;
    visible = !op.attributes.integer("causal") ? own : op.attributes.integer("turn") == 0 ? (own + 1) / 2 : own / 2;
  }
  return 2.0 * rows_of(listing, q, rows) * visible * static_cast<double>(op.attributes.integer("heads"));
}

// q at operand 0: shapes of q, k, v; then o and lse.
std::pair<Dim, Dim> check_heads(const Rule& rule, const Attributes& a, size_t q, bool whole_keys) {
  const int64_t length = a.integer("sequence"), cp = a.integer_or("cp", 1);
  rule.require(cp == 1 || length % (2 * cp) == 0, "a sequence is not 2·cp equal chunks");
  const Dim queries = rule.dim(q, 0);
  rule.require(queries.is_static() && queries.count % (length / cp) == 0, "rows are not whole sequences");
  rule.require(a.integer("heads") % a.integer("kv_heads") == 0, "heads is not a multiple of kv_heads");
  const Dim keys = fixed(whole_keys ? queries.count * cp : queries.count);
  rule.shape(q, {queries, fixed(a.integer("heads") * a.integer("head_dim"))});
  rule.shape(q + 1, {keys, fixed(a.integer("kv_heads") * a.integer("head_dim"))});
  rule.shape(q + 2, {keys, fixed(a.integer("kv_heads") * a.integer("value_dim"))});
  return {queries, fixed(a.integer("heads") * a.integer("value_dim"))};
}

double forward_widths(const Op& op) {
  return static_cast<double>(op.attributes.integer("head_dim") + op.attributes.integer("value_dim"));
}
// q kᵀ again, do vᵀ, pᵀ do, ds k, dsᵀ q: three products of the head's width and two of the value's.
double backward_widths(const Op& op) {
  return 3.0 * static_cast<double>(op.attributes.integer("head_dim")) +
         2.0 * static_cast<double>(op.attributes.integer("value_dim"));
}

const OpDef attention{
    .kind = "attention",
    .operands = "q k v", .results = "o lse",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? rank?",
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const auto [rows, columns] = check_heads(rule, op.attributes, 0, true);
      return std::vector{output(rule.dtype(0), {rows, columns}),
                         output(wide(rule.dtype(0)), {rows, fixed(op.attributes.integer("heads"))}, Role::metadata)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(attention_dgrad,
                                   {d_out[0], op.in[0], op.in[1], op.in[2], op.out[0], op.out[1]},
                                   {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, op.attributes);
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[0], rows) * forward_widths(op);
      return cost;
    },
};

const OpDef attention_dgrad{
    .kind = "attention_dgrad",
    .operands = "do q k v o lse", .results = "dq dk dv",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? rank?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      return std::vector{rule.like(1), rule.like(2),
                         rule.like(3)};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[1], rows) * backward_widths(op);
      return cost;
    },
};

const OpDef attention_part{
    .kind = "attention_part",
    .operands = "q k v o_before? lse_before?", .results = "o lse",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? turn",
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      const auto [rows, columns] = check_heads(rule, op.attributes, 0, false);
      const Dtype A = wide(rule.dtype(0));
      const std::vector out{output(A, {rows, columns}, Role::metadata),
                            output(A, {rows, fixed(op.attributes.integer("heads"))}, Role::metadata)};
      rule.require(rule.has(3) == rule.has(4), "o and lse of the parts before come together");
      for (size_t i = 0; i < 2 && rule.has(3); ++i) {
        rule.shape(3 + i, out[i].shape);
        rule.require(rule.dtype(3 + i) == A, "o and lse of the parts before are not wide");
      }
      return out;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[0], rows) * forward_widths(op);
      return cost;
    },
};

// Mentions: lse, q, then k and v of each part.
const OpDef attention_finish{
    .kind = "attention_finish",
    .operands = "o", .results = "y",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? turn?",
    .work = ir::Work::attention,
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.require(op.mentions.size() >= 4 && op.mentions.size() % 2 == 0, "mentions are not lse, q and pairs of k, v");
      return std::vector{output(listing.value(op.mentions[1]).dtype, rule.in(0).shape)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId lse = op.mentions[0], q = op.mentions[1];
      std::vector<ValueId> gradients(1 + op.mentions.size(), none);
      const size_t parts = (op.mentions.size() - 2) / 2;
      ValueId dq = none;
      for (size_t part = parts; part-- > 0;) {
        const ValueId k = op.mentions[2 + 2 * part], v = op.mentions[3 + 2 * part];
        Attributes attributes = op.attributes;
        attributes.set("turn", static_cast<int64_t>(part)).set("last", int64_t{part == 0});
        const auto d = writer.input_gradient(attention_part_dgrad, {d_out[0], q, k, v, op.out[0], lse, dq},
                                             {writer.d(q), writer.d(k), writer.d(v)}, attributes);
        dq = d[0];
        gradients[3 + 2 * part] = d[1];
        gradients[4 + 2 * part] = d[2];
      }
      gradients[2] = dq;
      return gradients;
    },
    .cost = operand_cost,
};

const OpDef attention_part_dgrad{
    .kind = "attention_part_dgrad",
    .operands = "do q k v o lse dq_before?", .results = "dq dk dv",
    .attributes = "heads kv_heads head_dim value_dim sequence causal scale cp? turn last",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_heads(rule, op.attributes, 1, false);
      Value dq = rule.like(1);
      if (op.attributes.integer("last") == 0) dq.dtype = wide(dq.dtype);
      if (rule.has(6)) {
        rule.shape(6, dq.shape);
        rule.require(rule.dtype(6) == wide(rule.dtype(1)), "the sum of dq is not wide");
      }
      return std::vector{dq, rule.like(2), rule.like(3)};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      cost.flops = score_flops(listing, op, op.in[1], rows) * backward_widths(op);
      return cost;
    },
};

}  // namespace

std::vector<const OpDef*> attention_ops() {
  return {&attention, &attention_dgrad, &attention_part, &attention_part_dgrad, &attention_finish};
}

}  // namespace heddle::ops
