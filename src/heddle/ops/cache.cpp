// A cache of what attention reads of earlier tokens, with which text goes on instead of being read all again. C
// rows of the cache are sequences of S positions, side by side. A listing's R rows stand anywhere in it: row t at
// places[t] = sequence·S + position, or nowhere where that is negative. Rows are written before any is attended to,
// so several of one sequence may come at once.
//
// A cache may have `keys` rows a sequence. A row then goes `offset` rows behind the first of them. With `rate`,
// rows are entries of so many tokens each (ops/compression.cpp). The row that stands at an entry's last token is
// written, at the entry's number. x may also have a row an entry of whole sequences. `rope_at` turns an entry by
// the position of its first token.
//
// Grouped attention keeps keys and values. Multi-head latent attention keeps the latent and the one rotated key, c
// + r elements a token. It reads them in the absorbed form (DeepSeek-V2, arXiv 2405.04434, section 2.1.2). Let the
// rows of w_kv_b of a head be K [n,c] and V [v,c]. Then q·(K latent) = (Kᵀ q)·latent and Σ p (V latent) = V Σ p
// latent. So `mla_absorb` makes Kᵀ q of each query. All heads read the one cached row as key and its first c
// elements as value. `mla_expand` makes V of what they have summed. An adapter beside w_kv_b is an operand of
// theirs: w stands for w + factor · up down, which nobody makes, for both of its matrices are thin.
#include <algorithm>

#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// clang-format off
const OpDef cache_rows{
    .kind = "cache_rows",
    .operands = "x places", .updates = "cache", .attributes = "first sequence? keys? offset? rate?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      if (const int64_t rate = op.attributes.integer_or("rate", 0); rate > 0 && rule.dim(0, 0) != rule.dim(1, 0)) {
        const int64_t length = op.attributes.integer("sequence");
        rule.require(rule.size(0, 0) * length == rule.size(1, 0) * (length / rate), "x is not the entries of whole sequences");
      } else {
        check_places(rule, 1);
      }
      const Value& cache = rule.updated(0);
      const int64_t first = op.attributes.integer("first");
      rule.require(cache.shape.size() == 2 && cache.dtype == rule.dtype(0), "the cache is no matrix of x's type");
      rule.require(first >= 0 && first + rule.size(0, 1) <= cache.shape[1].count, "columns are outside of the cache");
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = 2.0 * static_cast<double>(listing.bytes(op.in[0], rows))};
    },
};

const OpDef rope_at{
    .kind = "rope_at",
    .operands = "x table places", .results = "y",
    .attributes = "heads head_dim rope_dim sequence interleaved first? inverse? rate?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_turned_rows(rule, op.attributes);
      check_places(rule, 2);
      return std::vector{rule.like(0)};
    }),
};

const OpDef cached_attention{
    .kind = "cached_attention",
    .operands = "q places keys values? sinks?", .results = "o",
    .attributes = "heads kv_heads head_dim value_dim sequence scale window? chunk? cap?",
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Attributes& a = op.attributes;
      const int64_t heads = a.integer("heads"), kv_heads = a.integer("kv_heads");
      rule.quotient(heads, kv_heads, "heads is not a multiple of kv_heads");
      rule.quotient(rule.size(2, 0), a.integer("sequence"), "rows of the cache are not whole sequences");
      rule.shape(0, {rule.dim(0, 0), fixed(heads * a.integer("head_dim"))});
      check_places(rule, 1);
      rule.shape(2, {rule.dim(2, 0), fixed(kv_heads * a.integer("head_dim"))});
      if (rule.has(3)) {
        rule.shape(3, {rule.dim(2, 0), fixed(kv_heads * a.integer("value_dim"))});
      } else {
        rule.require(a.integer("value_dim") <= a.integer("head_dim"), "a value is longer than the key that it is in");
      }
      if (rule.has(4)) rule.shape(4, {fixed(heads)});
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(heads * a.integer("value_dim"))})};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      // Rows seen of sequences that are half full.
      double seen = (static_cast<double>(op.attributes.integer("sequence")) + 1) / 2;
      if (const int64_t window = op.attributes.integer_or("window", 0); window > 0) {
        seen = std::min(seen, static_cast<double>(window));
      }
      const double reads = rows_of(listing, op.in[0], rows) * seen;
      const auto width = static_cast<double>(op.attributes.integer("head_dim") + op.attributes.integer("value_dim"));
      Cost cost;
      cost.flops = 2.0 * reads * static_cast<double>(op.attributes.integer("heads")) * width;
      for (const ValueId id : {op.in[0], op.out[0]}) cost.bytes += static_cast<double>(listing.bytes(id, rows));
      for (size_t i = 2; i < std::min<size_t>(4, op.in.size()); ++i) {
        if (op.in[i] == none) continue;
        const auto size = static_cast<double>(size_of(listing.value(op.in[i]).dtype));
        cost.bytes += reads * columns_of(listing, op.in[i]) * size;
      }
      return cost;
    },
};
// clang-format on

struct Latent {
  explicit Latent(const Rule& rule, const Attributes& a)
      : heads(a.integer("heads")), latent(rule.size(1, 1)), joint(a.integer("nope") + a.integer("rope")) {
    rule.require(rule.in(1).layout == ir::Layout::rows, "w is packed");
    const Dim rows = fixed(heads * (a.integer("nope") + a.integer("value_dim")));
    rule.shape(1, {rows, fixed(latent)});
    rule.require(rule.has(2) == rule.has(3), "an adapter is two matrices");
    if (!rule.has(2)) return;
    rule.require(rule.in(2).layout == ir::Layout::rows && rule.in(3).layout == ir::Layout::rows,
                 "the adapter is packed");
    rule.require(rule.dtype(2) == rule.dtype(1) && rule.dtype(3) == rule.dtype(1),
                 "the adapter is not of w's type");
    rule.shape(2, {rule.dim(2, 0), fixed(latent)});
    rule.shape(3, {rows, rule.dim(2, 0)});
  }
  int64_t heads, latent, joint;
};

Cost latent_cost(const Listing& listing, const Op& op, const RowCounts& rows, std::string_view width) {
  Cost cost = operand_cost(listing, op, rows);
  const double runs = 2.0 * rows_of(listing, op.in[0], rows) * static_cast<double>(op.attributes.integer("heads"));
  const auto joint = static_cast<double>(op.attributes.integer(width));
  const double latent = columns_of(listing, op.in[1]);
  cost.flops = runs * latent * joint;
  if (op.in.size() > 3 && op.in[3] != none) cost.flops += runs * columns_of(listing, op.in[3]) * (latent + joint);
  return cost;
}

// clang-format off
const OpDef mla_absorb{
    .kind = "mla_absorb",
    .operands = "q w adapter_down? adapter_up?", .results = "y", .attributes = "heads nope rope value_dim factor?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Latent l(rule, op.attributes);
      rule.shape(0, {rule.dim(0, 0), fixed(l.heads * l.joint)});
      const int64_t columns = l.heads * (l.latent + op.attributes.integer("rope"));
      return std::vector{output(wide(rule.dtype(0)), {rule.dim(0, 0), fixed(columns)})};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return latent_cost(listing, op, rows, "nope");
    },
};

const OpDef mla_expand{
    .kind = "mla_expand",
    .operands = "x w adapter_down? adapter_up?", .results = "o", .attributes = "heads nope rope value_dim factor?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Latent l(rule, op.attributes);
      rule.shape(0, {rule.dim(0, 0), fixed(l.heads * l.latent)});
      rule.require(rule.dtype(0) == wide(rule.dtype(1)), "x is not wide");
      return std::vector{output(rule.dtype(1), {rule.dim(0, 0), fixed(l.heads * op.attributes.integer("value_dim"))})};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return latent_cost(listing, op, rows, "value_dim");
    },
};

const OpDef last_rows{
    .kind = "last_rows",
    .operands = "x places", .results = "y", .attributes = "runs",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t runs = op.attributes.integer("runs");
      check_places(rule, 1);
      rule.quotient(rule.size(0, 0), runs, "rows are not runs of one length");
      return std::vector{output(rule.dtype(0), {fixed(runs), rule.dim(0, 1)})};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = 2.0 * static_cast<double>(listing.bytes(op.out[0], rows))};
    },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> cache_ops() {
  return {&cache_rows, &rope_at, &cached_attention, &mla_absorb, &mla_expand, &last_rows};
}

}  // namespace heddle::ops
