// Compressed keys, and the map of groups of heads that goes with them (DeepSeek-V4). A sequence has S positions and
// E = ⌊S ÷ m⌋ entries of d elements. An entry stands for m tokens.
//
// `compress_rows` makes entry i of the rows c. It weighs them element by element, by z + bias:
//   one series:   softmax over the tokens j of window i of (z_j + bias_(j mod m)), times c_j, summed
//   two series:   rows are 2d wide. Entry i weighs the second half of window i and the first half of window i − 1
//                 by one softmax; window −1 has no part in it.
//   without z:    one series, in which all tokens of a window weigh the same
// With `starts`, an entry is made of those of its tokens that its last token may see. With `places`, c and z are
// rows of a cache. Row t then makes the entry whose last token it is. Rows that are no entry's last token make
// zeros.
//
// `list_keys` lists the keys that a query sees, for `chosen_attention`. The positions of its window come first.
// Then comes S + i for each entry i that it sees, of those in `chosen` or of all. Query t sees entries i < ⌊(t + 1)
// ÷ m⌋. With starts it sees those from ⌊starts ÷ m⌋ on, which end in its document. `join_entries` puts a sequence's
// entries behind its rows.
//
// `block_linear` makes y[t, g] = x[t, g] w[g]ᵀ. Groups g stand side by side in the columns of x, and one below the
// other in the rows of w.
#include <algorithm>

#include "heddle/ops/ops.h"
#include "heddle/ops/product_shapes.h"

namespace heddle::ops {

namespace {

extern const OpDef compress_rows_dgrad, compress_bias_wgrad, split_entries, block_linear_dgrad, block_linear_wgrad;

struct Windows {
  explicit Windows(const Op& op)
      : length(op.attributes.integer("sequence")),
        rate(op.attributes.integer("rate")),
        series(op.attributes.integer_or("series", 1)) {}
  int64_t entries() const { return length / rate; }
  int64_t length, rate, series;
};

// c, z and bias are operands from c on. Returns the width of an entry.
int64_t check_windows(const Rule& rule, const Op& op, size_t c) {
  const Windows w(op);
  rule.require(w.rate >= 1 && w.length >= w.rate && (w.series == 1 || w.series == 2), "a size is out of range");
  rule.require(rule.has(c + 1) == rule.has(c + 2), "z and the bias go together");
  rule.require(rule.has(c + 1) || w.series == 1, "two series without z");
  if (rule.has(c + 1)) rule.same(c, c + 1);
  const int64_t width = rule.quotient(rule.size(c, 1), w.series, "columns are not equal series");
  rule.quotient(rule.size(c, 0), w.length, "rows are not whole sequences");
  if (rule.has(c + 2))
    rule.is(c + 2, wide(rule.dtype(c)), {fixed(w.rate), fixed(w.series * width)}, "the bias is not wide");
  if (rule.has("starts")) rule.is(rule.place("starts"), Dtype::i32, {rule.dim(c, 0)}, "starts are not i32");
  return width;
}

Dim entries_of(const Rule& rule, const Op& op, size_t rows) {
  const Windows w(op);
  return fixed(rule.size(rows, 0) / w.length * w.entries());
}

// clang-format off
const OpDef compress_rows{
    .kind = "compress_rows",
    .operands = "c z? bias? starts? places?", .results = "e", .attributes = "sequence rate series?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t width = check_windows(rule, op, 0);
      if (!rule.has("places")) return std::vector{output(rule.dtype(0), {entries_of(rule, op, 0), fixed(width)})};
      const Value& places = rule.in(rule.place("places"));
      rule.require(places.dtype == Dtype::i32 && places.shape.size() == 1, "places are not i32");
      return std::vector{output(rule.dtype(0), {places.shape[0], fixed(width)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const bool gated = operand(op, 1) != none;
      std::vector<ValueId> in{d_out[0], op.in[0], operand(op, 1), operand(op, 2), operand(op, 3)};
      while (in.back() == none) in.pop_back();
      std::vector<std::string> names{writer.d(op.in[0])};
      if (gated) names.push_back(writer.d(op.in[1]));
      std::vector<ValueId> d = writer.input_gradient(compress_rows_dgrad, in, names, op.attributes);
      if (gated) {
        writer.weight_gradient(compress_bias_wgrad, {d[1]}, {op.in[2]},
                               {{"sequence", op.attributes.integer("sequence")}});
      }
      d.resize(op.in.size(), none);
      return d;
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost = operand_cost(listing, op, rows);
      if (operand(op, 4) == none) return cost;  // of a cache it reads a window a row
      const Windows w(op);
      cost.bytes = static_cast<double>(listing.bytes(op.out[0], rows)) *
                   static_cast<double>(1 + 2 * w.series * w.rate);
      return cost;
    },
};

const OpDef compress_rows_dgrad{
    .kind = "compress_rows_dgrad",
    .operands = "de c z? bias? starts?", .results = "dc dz?", .attributes = "sequence rate series?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t width = check_windows(rule, op, 1);
      rule.shape(0, {entries_of(rule, op, 1), fixed(width)});
      std::vector out{rule.like(1)};
      if (rule.has(2)) out.push_back(rule.like(2));
      return out;
    }),
};

const OpDef compress_bias_wgrad{
    .kind = "compress_bias_wgrad",
    .operands = "dz", .updates = "acc", .attributes = "sequence",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Value& acc = rule.updated(0);
      rule.require(acc.shape.size() == 2 && acc.shape[1] == rule.dim(0, 1), "acc is not as wide as dz");
      rule.quotient(rule.size(0, 0), op.attributes.integer("sequence"), "rows are not whole sequences");
    }),
};

const OpDef list_keys{
    .kind = "list_keys",
    .operands = "chosen? starts? places?", .results = "keys", .attributes = "rows sequence rate window cp?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Windows w(op);
      const int64_t rows = op.attributes.integer("rows"), cp = op.attributes.integer_or("cp", 1);
      const int64_t window = op.attributes.integer("window");
      rule.require(rows >= 0 && window >= 1 && w.rate >= 1 && w.length >= w.rate, "a size is out of range");
      int64_t entries = w.entries();
      if (rule.has(0)) {
        rule.require(rule.dtype(0) == Dtype::i32 && rule.size(0, 0) == rows, "chosen is not i32 of these rows");
        entries = rule.size(0, 1);
      }
      if (rule.has(1)) rule.is(1, Dtype::i32, {fixed(rows * cp)}, "starts are not i32");
      if (rule.has(2)) rule.is(2, Dtype::i32, {fixed(rows)}, "places are not i32");
      return std::vector{
          output(Dtype::i32, {fixed(rows), fixed(std::min(window, w.length) + entries)}, Role::metadata)};
    }),
};

const OpDef join_entries{
    .kind = "join_entries",
    .operands = "k e", .results = "joined", .attributes = "sequence rate",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.quotient(rule.size(0, 0), Windows(op).length, "rows are not whole sequences");
      rule.is(1, rule.dtype(0), {entries_of(rule, op, 0), rule.dim(0, 1)}, "entries are not of the rows' type");
      return std::vector{
          output(rule.dtype(0), {fixed(rule.size(0, 0) + entries_of(rule, op, 0).count), rule.dim(0, 1)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(split_entries, d_out, {writer.d(op.in[0]), writer.d(op.in[1])}, op.attributes);
    },
};

const OpDef split_entries{
    .kind = "split_entries",
    .operands = "joined", .results = "k e", .attributes = "sequence rate",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Windows w(op);
      const int64_t sequences =
          rule.quotient(rule.size(0, 0), w.length + w.entries(), "rows are not whole sequences with their entries");
      return std::vector{output(rule.dtype(0), {fixed(sequences * w.length), rule.dim(0, 1)}),
                         output(rule.dtype(0), {fixed(sequences * w.entries()), rule.dim(0, 1)})};
    }),
};
// clang-format on

// Returns the columns of a group in x or dx, and those that the group makes.
std::pair<int64_t, int64_t> groups_of_block(const Rule& rule, const Op& op, size_t w) {
  const int64_t groups = op.attributes.integer("groups");
  return {rule.size(w, 1), rule.quotient(rule.size(w, 0), groups, "rows of w are not equal groups")};
}

// clang-format off
const OpDef block_linear{
    .kind = "block_linear",
    .operands = "x w", .results = "y", .attributes = "groups",
    .product_of_rows = true,
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const auto [in, out] = groups_of_block(rule, op, 1);
      rule.shape(0, {rule.dim(0, 0), fixed(op.attributes.integer("groups") * in)});
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), rule.dim(1, 0)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], w = op.in[1];
      std::vector<ValueId> d{none, none};
      if (writer.wants_gradient(x))
        d[0] = writer.input_gradient(block_linear_dgrad, {d_out[0], w}, {writer.d(x)}, op.attributes)[0];
      writer.weight_gradient(block_linear_wgrad, {x, d_out[0]}, {w}, op.attributes);
      return d;
    },
    .cost = product_cost,
};

const OpDef block_linear_dgrad{
    .kind = "block_linear_dgrad",
    .operands = "dy w", .results = "dx", .attributes = "groups",
    .product_of_rows = true,
    .by_row = "dy dx",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const auto [in, out] = groups_of_block(rule, op, 1);
      rule.shape(0, {rule.dim(0, 0), rule.dim(1, 0)});
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(op.attributes.integer("groups") * in)})};
    }),
    .cost = product_cost,
};

const OpDef block_linear_wgrad{
    .kind = "block_linear_wgrad",
    .operands = "x dy", .updates = "acc", .attributes = "groups",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t groups = op.attributes.integer("groups");
      const int64_t in = rule.quotient(rule.size(0, 1), groups, "columns of x are not equal groups");
      rule.quotient(rule.size(1, 1), groups, "columns of dy are not equal groups");
      rule.require(rule.dim(0, 0) == rule.dim(1, 0), "x and dy differ in rows");
      rule.require(rule.updated(0).shape == ir::Shape{rule.dim(1, 1), fixed(in)}, "acc is not [N, K ÷ groups]");
    }),
    .cost = product_cost,
};
// clang-format on

}  // namespace

std::vector<const OpDef*> compression_ops() {
  return {&compress_rows, &compress_rows_dgrad, &compress_bias_wgrad, &list_keys,         &join_entries,
          &split_entries, &block_linear,        &block_linear_dgrad,  &block_linear_wgrad};
}

}  // namespace heddle::ops
