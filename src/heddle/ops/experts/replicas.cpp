// Replicas of hot experts for one microbatch, over the ranks of an exchange (ops/experts/exchange.cpp): their
// choice, their weights, and the return of their gradients. G ranks of H holders, P of E experts and C slots for
// replicas on each, T tokens with k experts. A weight is [P, N, K], a bias [P, N]. See
// docs/features/expert_replicas.md.
#include <algorithm>

#include "heddle/ir/placed_figures.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef return_copies;

/// The copies of all who hold experts.
int64_t copies_in_all(const Rule& rule, const Op& op) {
  return rule.quotient(op.attributes.integer("ranks"), op.attributes.integer("slices"),
                       "ranks is not a multiple of the slices") *
         op.attributes.integer("copies");
}

/// Checks the operand `homes`, where experts change their homes: the home of each expert
/// (ops/experts/expert_placement.cpp).
void require_homes(const Rule& rule, size_t homes, int64_t experts) {
  if (!rule.has(homes)) return;
  rule.require(rule.dtype(homes) == Dtype::i32, "the placement is not i32");
  rule.shape(homes, {fixed(experts)});
}

/// Rows that each expert had in the last steps.
void require_expert_rows(const Rule& rule, size_t rows, int64_t experts) {
  rule.require(rule.dtype(rows) == Dtype::f64, "rows of experts are not f64");
  rule.shape(rows, {fixed(experts)});
}

/// Checks the counts of a layer: rows of each of `holders`, and the figures behind them.
void require_placed(const Rule& rule, int64_t holders) {
  rule.require(
      rule.updated(0).dtype == Dtype::f64 && rule.updated(0).shape == ir::Shape{fixed(holders + kPlacedFigures)},
      "what is counted is not f64 [holders and figures]");
}

// clang-format off
const OpDef place_copies{
    .kind = "place_copies",
    .operands = "experts homes?", .results = "slots placement", .updates = "placed",
    .attributes = "ranks slices experts copies whole row_ps row_within_ps row_across_ps copy_within_ps copy_across_ps",
    .stream = StreamKind::comm,
    .collective = true,
    .calls_host = true,
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t experts = op.attributes.integer("experts");
      rule.require(rule.dtype(0) == Dtype::i32, "experts are not i32");
      const int64_t holders = rule.quotient(op.attributes.integer("ranks"), op.attributes.integer("slices"),
                                            "ranks is not a multiple of the slices");
      rule.quotient(experts, holders, "experts is not a multiple of the ranks");
      require_homes(rule, 1, experts);
      require_placed(rule, holders);
      return std::vector{output(Dtype::i32, rule.in(0).shape, Role::metadata),
                         output(Dtype::i32, {fixed(experts + holders * op.attributes.integer("copies"))}, Role::metadata)};
    }),
    .cost = [](const Listing&, const Op& op, const RowCounts&) {
      const auto others = static_cast<double>(op.attributes.integer("ranks") - 1);
      return Cost{.message_bytes = 4 * others * static_cast<double>(op.attributes.integer("experts"))};
    },
};

// From the loads of the last steps, all zero where nothing is known, as if every source had so many rows: nothing
// crosses. `shares`: of 65536 rows that this rank has for the expert of each copy, how many that copy takes.
const OpDef recall_copies{
    .kind = "recall_copies",
    .operands = "expert_rows homes?", .results = "placement shares",
    .attributes = "ranks slices experts copies whole row_ps row_within_ps row_across_ps copy_within_ps copy_across_ps rows",
    .stream = StreamKind::comm,
    .collective = true,
    .calls_host = true,
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t slots = copies_in_all(rule, op), experts = op.attributes.integer("experts");
      require_expert_rows(rule, 0, experts);
      require_homes(rule, 1, experts);
      return std::vector{output(Dtype::i32, {fixed(experts + slots)}, Role::metadata),
                         output(Dtype::i32, {fixed(slots)}, Role::metadata)};
    }),
    .cost = [](const Listing&, const Op&, const RowCounts&) { return Cost{}; },
};

const OpDef place_rows{
    .kind = "place_rows",
    .operands = "experts placement shares expert_rows homes?", .results = "slots", .updates = "placed",
    .attributes = "ranks slices experts copies",
    .stream = StreamKind::comm,
    .collective = true,
    .calls_host = true,
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t slots = copies_in_all(rule, op), experts = op.attributes.integer("experts");
      rule.require(rule.dtype(0) == Dtype::i32, "experts are not i32");
      rule.shape(1, {fixed(experts + slots)});
      rule.shape(2, {fixed(slots)});
      require_expert_rows(rule, 3, experts);
      require_homes(rule, 4, experts);
      require_placed(rule, op.attributes.integer("ranks") / op.attributes.integer("slices"));
      return std::vector{output(Dtype::i32, rule.in(0).shape, Role::metadata)};
    }),
    .cost = [](const Listing&, const Op&, const RowCounts&) { return Cost{}; },
};

// `bytes`, where w is packed, are those of one expert.
const OpDef fetch_copies{
    .kind = "fetch_copies",
    .operands = "w placement", .results = "copies",
    .attributes = "ranks slices copies bytes?",
    .stream = StreamKind::comm,
    .collective = true,
    .made_again = true,
    .packable = "w",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Value& w = rule.in(0);
      const int64_t bytes = op.attributes.integer_or("bytes", 0), copies = op.attributes.integer("copies");
      rule.require(w.shape.size() == 3 || w.shape.size() == 2, "w is neither [P, N, K] nor [P, N]");
      rule.require(bytes * w.shape[0].count == w.packed_bytes, "says the bytes of what is packed, and of nothing else");
      ir::Shape shape = w.shape;
      shape[0] = fixed(copies);
      Value made = output(w.dtype, std::move(shape));
      made.layout = w.layout;
      made.packed_bytes = bytes * copies;
      return std::vector{std::move(made)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      writer.add_to_gradient(return_copies, {d_out[0], op.in[1]}, op.in[0],
                             {{"ranks", op.attributes.integer("ranks")}, {"slices", op.attributes.integer("slices")}});
      return std::vector{none, none};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.message_bytes = static_cast<double>(listing.bytes(op.out[0], rows))};
    },
};

const OpDef return_copies{
    .kind = "return_copies",
    .operands = "partial placement", .updates = "acc",
    .attributes = "ranks slices",
    .stream = StreamKind::comm,
    .collective = true,
    .adds_beside = true,
    .exact = "return_copies",
    .infer = by_rule([](const Rule& rule) {
      const ir::Shape &partial = rule.in(0).shape, &acc = rule.updated(0).shape;
      rule.require(rule.dtype(0) == rule.updated(0).dtype, "partial and sum differ in type");
      rule.require(partial.size() == acc.size() && std::equal(partial.begin() + 1, partial.end(), acc.begin() + 1),
                   "partial and sum differ in N or K");
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.message_bytes = static_cast<double>(listing.bytes(op.in[0], rows))};
    },
};
// clang-format on

}  // namespace

std::vector<const OpDef*> copies_ops() {
  return {&place_copies, &recall_copies, &place_rows, &fetch_copies, &return_copies};
}

}  // namespace heddle::ops
