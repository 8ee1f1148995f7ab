// Selection of keys (DeepSeek Sparse Attention: DeepSeek-V3.2, arXiv 2512.02556, section 2.1). An indexer of h
// heads of d elements scores the keys that a query may see: I[t,s] = scale · Σ_h w[t,h] · relu(q[t,h] · k[s]).
// `choose_keys` takes the top_k best of them. Of equal scores the earlier key is chosen. What it chooses are
// positions in the query's sequence, in increasing order, and −1 behind the last one.
//
// T = B·S/(cp·tp) rows of queries. With cp > 1 a rank has its share of each sequence, with tp > 1 its part of that
// share. The keys k are those of the whole sequences, in order. With `places`, keys are the rows of a cache
// instead, of sequences of S positions, and query t stands at places[t] (ops/cache.cpp).
//
// The keys of `choose_keys` may be entries of `rate` tokens each (ops/compression.cpp). Then `chosen` holds the
// numbers of entries. `keys` says how many rows of keys a sequence has, where it has more or fewer than positions.
//
// Without w the sum over heads is that of relu(q[t,h] · k[s]).
//
// `choose_blocks` chooses blocks of `block` keys, counted from the sequence's start. Each head has a choice of its
// own. A block's score is the greatest q[t,h] · k[s] of those of its keys that the query sees. The last `local`
// blocks up to the query's own are always chosen. The columns of `chosen` are those of one head after the other.
//
// `chosen_attention` reads the chosen keys alone. With `block`, each number in `chosen` is that of a block, and a
// query reads those of its keys that it sees. With `tail` it also reads the keys behind the last whole block up to
// its own position. With `lists`, each key head has columns of its own. A sink is one more score of a head, and has
// no value. Without v, the first value_dim elements of a key are its value.
//
// `attention_share` is what all heads together give to each key: Σ_h exp(scale · q_h · k − lse_h), with the lse of
// the layer's attention. Sinks and keys that the share leaves out have their part in that lse. `index_loss` draws
// the indexer to it. Let p be that share ÷ its sum: the loss is weight · Σ_t KL(p_t ‖ softmax(I_t)). It goes over
// the chosen keys, and without `chosen` over all that a query sees. A row whose share is 0 has no loss. p has no
// gradient. Neither has the input of `detached_linear`: the indexer learns from its own loss alone, and nothing
// else learns from it (section 2.1.1).
//
//   entries:   (DeepSeek-V4) k of `attention_share` are the entries. Keys of the window have a part in lse alone:
//              the target is the attention's own probability of each entry. Megatron-LM (issue 5776), Primus
//              (pull request 992) and VeOmni (pull request 1134) define it so.
//   lists:     (MiniMax-M3, arXiv 2606.13392) each key head has a loss of its own, over the keys in its blocks. The
//              shares are those of its group of heads. Its indexer's head scores keys by scale · q · k.
//   of_blocks: (Qwen4-Exp, GLM-5.3) the share of a block is the sum of those of its keys. No loss of theirs is
//              published. This one is that of entries, of which a block is one.
#include <algorithm>

#include "heddle/base/error.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/product_shapes.h"

namespace heddle::ops {

namespace {

extern const OpDef chosen_attention_dgrad, index_loss_dgrad;

// Rows of queries q, of which each of the cp·tp ranks has as many, and of whole sequences of keys k.
void check_rows(const Rule& rule, const Op& op, size_t q, size_t k) {
  const Attributes& a = op.attributes;
  const int64_t length = a.integer("sequence"), cp = a.integer_or("cp", 1), tp = a.integer_or("tp", 1);
  const int64_t keys = a.integer_or("keys", length);
  rule.require(length >= 1 && cp >= 1 && tp >= 1, "a size is below one");
  if (rule.has("places")) {
    rule.require(cp == 1 && tp == 1, "a cache is of one rank");
    rule.is(rule.place("places"), Dtype::i32, {rule.dim(q, 0)}, "places are not i32");
    rule.quotient(rule.size(k, 0), keys, "rows of the cache are not whole sequences");
    return;
  }
  rule.require(length % ((cp > 1 ? 2 * cp : 1) * tp) == 0, "a sequence is not equal parts of all ranks");
  rule.require(rule.size(q, 0) % (length / (cp * tp)) == 0, "rows are not whole sequences");
  rule.require(rule.size(k, 0) * length == rule.size(q, 0) * cp * tp * keys,
               "keys are not those of the whole sequences");
  if (rule.has("starts"))
    rule.is(rule.place("starts"), Dtype::i32, {fixed(rule.size(q, 0) * cp * tp)}, "starts are not i32");
}

void check_chosen(const Rule& rule, size_t q, size_t chosen) {
  rule.require(rule.dtype(chosen) == Dtype::i32, "the chosen keys are not i32");
  rule.shape(chosen, {rule.dim(q, 0), rule.dim(chosen, 1)});
}

// `chosen` holds a list for each key head, or one for all, of keys or of blocks of them.
void check_lists(const Rule& rule, const Op& op, size_t chosen) {
  const Attributes& a = op.attributes;
  const int64_t lists = a.integer_or("lists", 1);
  rule.quotient(rule.size(chosen, 1), lists, "columns are not equal lists");
  rule.require(lists == 1 || lists == a.integer("kv_heads"), "there is not a list a key head");
  rule.require(a.integer_or("block", 1) >= 1, "a block is empty");
  rule.require(a.has("block") || a.integer_or("tail", 0) == 0, "a tail without blocks");
}

// q, k and w of an indexer, which lead its operands.
void check_indexer(const Rule& rule, const Op& op) {
  const int64_t heads = op.attributes.integer("heads"), width = op.attributes.integer("head_dim");
  rule.require(heads >= 1 && width >= 1, "a size is below one");
  rule.shape(0, {rule.dim(0, 0), fixed(heads * width)});
  rule.shape(1, {rule.dim(1, 0), fixed(width)});
  if (rule.has("w"))
    rule.is(2, wide(rule.dtype(0)), {rule.dim(0, 0), fixed(heads)}, "the weights of heads are not wide");
  check_rows(rule, op, 0, 1);
}

// A query sees so many keys, a mean over all.
double seen(const Op& op) {
  return (static_cast<double>(op.attributes.integer("sequence")) + 1) / 2 /
         static_cast<double>(op.attributes.integer_or("rate", 1));
}
// It counts the same where a query has no more than `count` of them.
double seen(const Op& op, int64_t count) {
  const auto length = static_cast<double>(op.attributes.integer("sequence"));
  const double most = std::min(static_cast<double>(count), length);
  return most - most * (most - 1) / (2 * length);
}
// Chosen keys may be entries of `rate` tokens. Keys listed behind those of a window are entries, too. Each then
// stands for length ÷ entries tokens.
double seen(const Listing& listing, const Op& op, ValueId chosen) {
  if (chosen == none) return seen(op);
  const int64_t length = op.attributes.integer("sequence"), block = op.attributes.integer_or("block", 1);
  const int64_t tail = op.attributes.integer_or("tail", 0) == 0 ? 0 : block - 1;
  const int64_t columns =
      listing.value(chosen).shape[1].count / op.attributes.integer_or("lists", 1) * block + tail;
  const int64_t entries = op.attributes.integer_or("keys", length) - length;
  if (entries <= 0) {
    const int64_t rate = op.attributes.integer_or("rate", 1);
    return seen(op, columns * rate) / static_cast<double>(rate);
  }
  const int64_t window = std::min(op.attributes.integer("window"), length), rate = length / entries;
  return seen(op, window) + seen(op, (columns - window) * rate) / static_cast<double>(rate);
}

// `products` of all heads with so many keys of each query.
Cost pairs_cost(const Listing& listing, const Op& op, const RowCounts& rows, ValueId q, double keys,
                double products) {
  Cost cost = operand_cost(listing, op, rows);
  cost.flops =
      2 * rows_of(listing, q, rows) * keys * static_cast<double>(op.attributes.integer("heads")) * products;
  return cost;
}
double width(const Op& op) { return static_cast<double>(op.attributes.integer("head_dim")); }
double value_width(const Op& op) { return static_cast<double>(op.attributes.integer("value_dim")); }

// clang-format off
const OpDef detached_linear{
    .kind = "detached_linear",
    .operands = "x w", .results = "y", .attributes = "wide?",
    .product_of_rows = true,
    .packable = "w",
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      return linear_shape(rule, 1, op.attributes.integer_or("wide", 0) != 0 ? wide(rule.dtype(0)) : rule.dtype(0));
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      writer.weight_gradient(find("linear_wgrad"), {op.in[0], d_out[0]}, {op.in[1]});
      return std::vector<ValueId>{none, none};
    },
    .cost = product_cost,
};

const OpDef choose_keys{
    .kind = "choose_keys",
    .operands = "q k w? starts? places?", .results = "chosen",
    .attributes = "heads head_dim sequence top_k scale cp? tp? keys? rate?",
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_indexer(rule, op);
      const int64_t count = op.attributes.integer("top_k"), length = op.attributes.integer("sequence");
      const int64_t keys = op.attributes.integer_or("keys", length), rate = op.attributes.integer_or("rate", 1);
      rule.require(rate >= 1 && keys == length / rate, "keys are not the sequence's entries");
      rule.require(count >= 1 && count <= keys, "top_k is not within the keys");
      return std::vector{output(Dtype::i32, {rule.dim(0, 0), fixed(count)}, Role::metadata)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return pairs_cost(listing, op, rows, op.in[0], seen(op), width(op));
    },
};
// clang-format on

// clang-format off
const OpDef choose_blocks{
    .kind = "choose_blocks",
    .operands = "q k starts? places?", .results = "chosen",
    .attributes = "heads head_dim sequence top_k block local? cp?",
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_indexer(rule, op);
      const Attributes& a = op.attributes;
      const int64_t count = a.integer("top_k"), length = a.integer("sequence"), block = a.integer("block");
      rule.require(block >= 1 && count >= 1 && count <= (length + block - 1) / block, "top_k is not within the blocks");
      rule.require(a.integer_or("local", 0) >= 0 && a.integer_or("local", 0) <= count, "local is not within top_k");
      return std::vector{output(Dtype::i32, {rule.dim(0, 0), fixed(a.integer("heads") * count)}, Role::metadata)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return pairs_cost(listing, op, rows, op.in[0], seen(op), width(op));
    },
};
// clang-format on

// q at operand `q`, then k and v; returns the shape of o.
ir::Shape check_heads(const Rule& rule, const Op& op, size_t q, size_t chosen) {
  const Attributes& a = op.attributes;
  rule.quotient(a.integer("heads"), a.integer("kv_heads"), "heads is not a multiple of kv_heads");
  rule.shape(q, {rule.dim(q, 0), fixed(a.integer("heads") * a.integer("head_dim"))});
  rule.shape(q + 1, {rule.dim(q + 1, 0), fixed(a.integer("kv_heads") * a.integer("head_dim"))});
  if (rule.has(q + 2)) {
    rule.shape(q + 2, {rule.dim(q + 1, 0), fixed(a.integer("kv_heads") * a.integer("value_dim"))});
  } else {
    rule.require(a.integer("value_dim") <= a.integer("head_dim"), "a value is longer than the key that it is in");
  }
  check_chosen(rule, q, chosen);
  check_lists(rule, op, chosen);
  check_rows(rule, op, q, q + 1);
  return {rule.dim(q, 0), fixed(a.integer("heads") * a.integer("value_dim"))};
}

// clang-format off
const OpDef chosen_attention{
    .kind = "chosen_attention",
    .operands = "q k v? chosen places? sinks? starts?", .results = "o lse",
    .attributes = "heads kv_heads head_dim value_dim sequence scale cp? keys? window? block? tail? lists?",
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const ir::Shape shape = check_heads(rule, op, 0, 3);
      if (rule.has(5))
        rule.is(5, wide(rule.dtype(0)), {fixed(op.attributes.integer("heads"))}, "sinks are not of the wide type");
      return std::vector{output(rule.dtype(0), shape),
                         output(wide(rule.dtype(0)), {shape[0], fixed(op.attributes.integer("heads"))}, Role::metadata)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      HEDDLE_CHECK(op.in[2] != none && operand(op, 4) == none, "'{}' of a cache has no gradient", op.kind());
      if (const ValueId sinks = operand(op, 5); sinks != none) {
        writer.weight_gradient(find("attention_sinks_wgrad"), {d_out[0], op.out[0], op.out[1], sinks}, {sinks},
                               {{"heads", op.attributes.integer("heads")}});
      }
      std::vector<ValueId> in{d_out[0], op.in[0], op.in[1], op.in[2], op.out[0], op.out[1], op.in[3]};
      if (const ValueId starts = operand(op, 6); starts != none) in.push_back(starts);
      std::vector<ValueId> d =
          writer.input_gradient(chosen_attention_dgrad, in,
                                {writer.d(op.in[0]), writer.d(op.in[1]), writer.d(op.in[2])}, op.attributes);
      d.resize(op.in.size(), none);
      return d;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return pairs_cost(listing, op, rows, op.in[0], seen(listing, op, op.in[3]), width(op) + value_width(op));
    },
};

const OpDef chosen_attention_dgrad{
    .kind = "chosen_attention_dgrad",
    .operands = "do q k v o lse chosen starts?", .results = "dq dk dv",
    .attributes = "heads kv_heads head_dim value_dim sequence scale cp? keys? window? block? tail? lists?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.shape(0, check_heads(rule, op, 1, 6));
      return std::vector{rule.like(1), rule.like(2), rule.like(3)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return pairs_cost(listing, op, rows, op.in[1], seen(listing, op, op.in[6]),
                        3 * width(op) + 2 * value_width(op));
    },
};

const OpDef attention_share{
    .kind = "attention_share",
    .operands = "q k lse chosen? starts?", .results = "share",
    .attributes = "heads kv_heads head_dim sequence scale cp? keys? rate? lists? block? of_blocks?",
    .work = ir::Work::attention,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Attributes& a = op.attributes;
      const int64_t lists = a.integer_or("lists", 1), block = a.integer_or("block", 1);
      const bool of_blocks = a.integer_or("of_blocks", 0) != 0;
      rule.quotient(a.integer("heads"), a.integer("kv_heads"), "heads is not a multiple of kv_heads");
      rule.require(lists == 1 || lists == a.integer("kv_heads"), "there is not a list a key head");
      rule.require(block >= 1 && (!of_blocks || a.has("block")), "shares of blocks without blocks");
      rule.shape(0, {rule.dim(0, 0), fixed(a.integer("heads") * a.integer("head_dim"))});
      rule.shape(1, {rule.dim(1, 0), fixed(a.integer("kv_heads") * a.integer("head_dim"))});
      rule.is(2, wide(rule.dtype(0)), {rule.dim(0, 0), fixed(a.integer("heads"))}, "lse is not of the wide type");
      if (rule.has(3)) check_chosen(rule, 0, 3);
      check_rows(rule, op, 0, 1);
      const int64_t keys = a.integer_or("keys", a.integer("sequence"));
      const int64_t columns = rule.has(3) ? rule.size(3, 1) * (of_blocks ? 1 : block)
                                          : lists * (of_blocks ? keys / block : keys);
      return std::vector{output(wide(rule.dtype(0)), {rule.dim(0, 0), fixed(columns)}, Role::metadata)};
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return pairs_cost(listing, op, rows, op.in[0], seen(listing, op, operand(op, 3)), width(op));
    },
};
// clang-format on

// Without lists, one indexer of all heads has one loss a row.
void check_index_loss(const Rule& rule, const Op& op) {
  check_indexer(rule, op);
  const Attributes& a = op.attributes;
  const int64_t lists = a.integer_or("lists", 1);
  rule.require(!a.has("lists") || (lists == a.integer("heads") && !rule.has(2)), "there is not a list a head");
  rule.require(rule.dtype(3) == wide(rule.dtype(0)), "the share is not wide");
  const int64_t keys = a.integer_or("keys", a.integer("sequence"));
  const int64_t columns = rule.has(5) ? rule.size(5, 1) * a.integer_or("block", 1) : lists * keys;
  rule.shape(3, {rule.dim(0, 0), fixed(columns)});
  rule.require(rule.size(4, 0) > a.integer("scale_index"), "scale_index is out of range");
  if (rule.has(5)) check_chosen(rule, 0, 5);
}

// clang-format off
const OpDef index_loss{
    .kind = "index_loss",
    .operands = "q k w? share scales chosen? starts?", .results = "loss",
    .attributes = "heads head_dim sequence scale weight scale_index cp? tp? keys? rate? lists? block?",
    .is_loss = true,
    .infer = [](const Listing& listing, const Op& op) {
      check_index_loss(Rule(listing, op), op);
      return std::vector{output(Dtype::f64, {fixed(1)}, Role::metadata)};
    },
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>&) {
      std::vector<std::string> learns{writer.d(op.in[0]), writer.d(op.in[1])};
      if (op.in[2] != none) learns.push_back(writer.d(op.in[2]));
      std::vector<ValueId> d = writer.input_gradient(index_loss_dgrad, op.in, learns, op.attributes);
      d.resize(op.in.size(), none);
      return d;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return pairs_cost(listing, op, rows, op.in[0], seen(listing, op, operand(op, 5)), width(op));
    },
};

const OpDef index_loss_dgrad{
    .kind = "index_loss_dgrad",
    .operands = "q k w? share scales chosen? starts?", .results = "dq dk dw?",
    .attributes = "heads head_dim sequence scale weight scale_index cp? tp? keys? rate? lists? block?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_index_loss(rule, op);
      std::vector out{rule.like(0), rule.like(1)};
      if (rule.has(2)) out.push_back(rule.like(2));
      return out;
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return pairs_cost(listing, op, rows, op.in[0], seen(listing, op, operand(op, 5)), 3 * width(op));
    },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> selection_ops() {
  return {&detached_linear,        &choose_keys,     &choose_blocks, &chosen_attention,
          &chosen_attention_dgrad, &attention_share, &index_loss,    &index_loss_dgrad};
}

}  // namespace heddle::ops
