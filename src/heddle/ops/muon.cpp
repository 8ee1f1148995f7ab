// Muon: the momentum of a matrix made orthogonal (Jordan et al., 2024; at scale: Liu et al., arXiv 2502.16982). The
// optimizer's state may be cut among ranks, and what tp or etp cuts is; the step of a matrix needs it whole.
// Matrices of one form are therefore dealt out to the ranks of a group, matrix j to rank j mod G. They stand one
// below the other while they are made orthogonal by products that the registry has anyway. Then they go back where
// they came from.
//
// S matrices of a stack are r×c each. Where they are worked on, they are a×b, a = min(r, c), b = max(r, c): one
// that is higher than wide lies turned.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// clang-format off
const OpDef muon_momentum{
    .kind = "muon_momentum",
    .operands = "clip accumulators*", .results = "u", .updates = "m", .attributes = "momentum dtype",
    .by_element = "accumulators* u m",
    .reaches_host = "m",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(op.in.size() >= 2, "needs clip and an accumulator");
      for (size_t i = 1; i < op.in.size(); ++i) {
        rule.require(rule.in(i).shape == rule.updated(0).shape, "momentum and accumulator differ in shape");
      }
      return std::vector{output(dtype_named(op.attributes.word("dtype")), rule.updated(0).shape, Role::metadata)};
    }),
};
// clang-format on

// The deal of matrices to the ranks where parts come together: `count` a part, of `elements` each. With "runs"
// every rank has the same parts, each cut into equal runs; with "blocks" a matrix is the blocks of all ranks side
// by side.
struct Deal {
  Deal(const Rule& rule, const Op& op)
      : ranks(op.attributes.integer("ranks")),
        count(op.attributes.integer("count")),
        elements(op.attributes.integer("elements")),
        blocks(op.attributes.word("cut") == "blocks") {
    rule.require(blocks || op.attributes.word("cut") == "runs", "is of neither runs nor blocks");
    rule.require(ranks > 0 && count > 0 && elements > 0, "has a size below one");
  }
  int64_t of_part() const { return blocks ? count * elements : (count * elements + ranks - 1) / ranks; }
  int64_t slots(int64_t parts) const { return (parts * count + ranks - 1) / ranks; }
  int64_t width() const { return blocks ? ranks * elements : elements; }
  int64_t ranks, count, elements;
  bool blocks;
};

Cost deal_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  Cost cost = operand_cost(listing, op, rows);
  const auto ranks = static_cast<double>(op.attributes.integer("ranks"));
  for (const ValueId id : op.kind() == "gather_matrices" ? op.in : op.out) {
    cost.message_bytes += static_cast<double>(listing.bytes(id, rows)) * (ranks - 1) / ranks;
  }
  return cost;
}

// clang-format off
const OpDef gather_matrices{
    .kind = "gather_matrices",
    .operands = "parts*", .results = "stack", .attributes = "ranks count elements cut",
    .stream = StreamKind::comm,
    .collective = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Deal deal(rule, op);
      rule.require(!op.in.empty(), "needs a part");
      for (size_t i = 0; i < op.in.size(); ++i) {
        rule.require(static_elements(rule.in(i)) == deal.of_part() && rule.dtype(i) == rule.dtype(0),
                     "a part has another size or type than its matrices");
      }
      return std::vector{output(rule.dtype(0), {fixed(deal.slots(static_cast<int64_t>(op.in.size()))), fixed(deal.width())},
                                Role::metadata)};
    }),
    .cost = deal_cost,
};

const OpDef scatter_matrices{
    .kind = "scatter_matrices",
    .operands = "stack", .results = "parts*", .attributes = "ranks count elements cut parts",
    .stream = StreamKind::comm,
    .collective = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const Deal deal(rule, op);
      const int64_t parts = op.attributes.integer("parts");
      rule.require(static_elements(rule.in(0)) == deal.slots(parts) * deal.width(), "the stack has another size than its parts");
      return std::vector<Value>(static_cast<size_t>(parts),
                                output(rule.dtype(0), {fixed(deal.of_part())}, Role::metadata));
    }),
    .cost = deal_cost,
};

void check_stack(const Rule& rule, const Attributes& at, int64_t elements) {
  const int64_t count = at.integer("count"), rows = at.integer("rows"), columns = at.integer("columns");
  const int64_t blocks = at.integer("blocks");
  rule.require(elements == count * rows * columns, "the stack has another size than its matrices");
  rule.require(blocks >= 1 && columns % blocks == 0, "blocks do not divide the columns");
}

const OpDef unit_matrices{
    .kind = "unit_matrices",
    .operands = "stack", .results = "x", .attributes = "count rows columns blocks",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_stack(rule, op.attributes, static_elements(rule.in(0)));
      const int64_t rows = op.attributes.integer("rows"), columns = op.attributes.integer("columns");
      return std::vector{output(rule.dtype(0),
                                {fixed(op.attributes.integer("count") * std::min(rows, columns)), fixed(std::max(rows, columns))},
                                Role::metadata)};
    }),
};

const OpDef place_matrices{
    .kind = "place_matrices",
    .operands = "x", .results = "stack", .attributes = "count rows columns blocks",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_stack(rule, op.attributes, static_elements(rule.in(0)));
      return std::vector{output(rule.dtype(0),
                                {fixed(op.attributes.integer("count")),
                                 fixed(op.attributes.integer("rows") * op.attributes.integer("columns"))},
                                Role::metadata)};
    }),
};

// The row groups of a product over a stack.
const OpDef even_offsets{
    .kind = "even_offsets",
    .operands = "", .results = "bounds", .attributes = "groups rows",
    .equal_groups = "bounds",
    .infer = [](const Listing&, const Op& op) {
      return std::vector{output(Dtype::i32, {fixed(op.attributes.integer("groups") + 1)}, Role::metadata)};
    },
};

const OpDef scaled_sum{
    .kind = "scaled_sum",
    .operands = "x z", .results = "y", .attributes = "alpha beta",
    .infer = by_rule([](const Rule& rule) {
      rule.same(1, 0);
      return std::vector{output(rule.dtype(0), rule.in(0).shape, Role::metadata)};
    }),
};

const OpDef muon_step{
    .kind = "muon_step",
    .operands = "clip hyper o", .updates = "master copy?", .attributes = "scale decay copy",
    .by_element = "o master copy?",
    .overwrites = "copy?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const bool copy = op.attributes.integer("copy") != 0;
      rule.require(op.updates.size() == (copy ? 2u : 1u), "needs the master, and the copy when copy = 1");
      for (size_t i = 0; i < op.updates.size(); ++i) {
        rule.require(static_elements(rule.updated(i)) == static_elements(rule.in(2)), "master and direction differ in size");
      }
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> muon_ops() {
  return {&muon_momentum,  &gather_matrices, &scatter_matrices, &unit_matrices,
          &place_matrices, &even_offsets,    &scaled_sum,       &muon_step};
}

}  // namespace heddle::ops
