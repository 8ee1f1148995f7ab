// Linear maps whose operands are rounded to eight bits, e4m3 in blocks of 128 that share a scale
// (ops/matrices/fp8_blocks.h), and the rounding of rows that are kept so. T rows, K in, N out; R rows sorted by expert, E
// experts; w is [N, K] or [E, N, K]; ⌈K/128⌉ scales a row. q holds bytes of e4m3, scales those of powers of two.
//
// What is rounded together: of rows, 128 columns of one row, where a product sums over columns; for the gradient of a
// weight, which sums over rows, 128 rows of one column, from the first row of each expert on; of a weight, 128 × 128.
// The blocks at the ends are smaller. Sums are of X's accumulation type, as those of the maps that these stand in for
// (ops/linear.cpp, ops/grouped_linear.cpp), of which they have the shapes.
//
// Source: DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.
#include <array>

#include "heddle/ops/matrices/fp8_blocks.h"
#include "heddle/ops/matrices/fp8.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// Operands 0 and 1: rows and their scales.
void check_rounded(const Rule& rule) {
  rule.require(rule.dtype(0) == Dtype::u8 && rule.dtype(1) == Dtype::u8, "q and scales are not bytes");
  rule.shape(1, {rule.dim(0, 0), fixed(fp8::blocks_of(rule.size(0, 1)))});
}

void check_groups(const Rule& rule, size_t offsets, int64_t experts, size_t copies) {
  int64_t groups = experts;
  if (rule.has(copies)) groups += rule.size(copies, 0);
  rule.shape(offsets, {fixed(groups + 1)});
  rule.require(rule.dtype(offsets) == Dtype::i32, "offsets are not i32");
}

void check_copies(const Rule& rule, size_t w, size_t copies) {
  if (!rule.has(copies)) return;
  const Value &own = rule.in(w), &others = rule.in(copies);
  rule.require(others.shape.size() == 3 && others.shape[1] == own.shape[1] && others.shape[2] == own.shape[2] &&
                   others.dtype == own.dtype,
               "copies are not like w");
}

// 2·rows·N·K.
Cost product_cost(const Listing& listing, const Op& op, const RowCounts& rows) {
  Cost cost = operand_cost(listing, op, rows);
  const ValueId weight = op.updates.empty() ? op.operand("w") : op.updates[0];
  const ir::Shape& shape = listing.value(weight).shape;
  cost.flops = 2.0 * rows_of(listing, op.in[0], rows) * static_cast<double>(shape[shape.size() - 2].count) *
               static_cast<double>(shape.back().count);
  return cost;
}

const OpDef round_rows{
    .kind = "round_rows",
    .operands = "x", .results = "q scales",
    .by_row = "x q scales",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      return std::vector{output(Dtype::u8, {rule.dim(0, 0), rule.dim(0, 1)}),
                         output(Dtype::u8, {rule.dim(0, 0), fixed(fp8::blocks_of(rule.size(0, 1)))})};
    },
    .cost = operand_cost,
};

const OpDef linear_fp8{
    .kind = "linear_fp8",
    .operands = "q scales w bias?", .results = "y",
    .by_row = "q scales y",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_rounded(rule);
      rule.require(rule.size(0, 1) == rule.size(2, 1), "q and w differ in their last dim");
      if (rule.has(3)) rule.shape(3, {rule.dim(2, 0)});
      return std::vector{output(rule.dtype(2), {rule.dim(0, 0), rule.dim(2, 0)})};
    },
    .cost = product_cost,
};

const OpDef linear_fp8_dgrad{
    .kind = "linear_fp8_dgrad",
    .operands = "dy w", .results = "dx", .attributes = "dtype",
    .by_row = "dy dx",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.require(rule.size(0, 1) == rule.size(1, 0), "dy's columns are not w's rows");
      return std::vector{output(dtype_named(op.attributes.word("dtype")), {rule.dim(0, 0), rule.dim(1, 1)})};
    },
    .cost = product_cost,
};

const OpDef linear_fp8_wgrad{
    .kind = "linear_fp8_wgrad",
    .operands = "q scales dy", .updates = "acc bias_acc?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_rounded(rule);
      rule.require(rule.dim(0, 0) == rule.dim(2, 0), "q and dy differ in rows");
      rule.require(rule.updated(0).shape == ir::Shape{rule.dim(2, 1), rule.dim(0, 1)}, "acc is not [N, K]");
      return std::vector<Value>{};
    },
    .cost = product_cost,
};

const OpDef grouped_linear_fp8{
    .kind = "grouped_linear_fp8",
    .operands = "q scales w offsets copies?", .results = "y",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_rounded(rule);
      rule.require(rule.size(0, 1) == rule.size(2, 2), "q and w differ in their last dim");
      check_groups(rule, 3, rule.size(2, 0), 4);
      check_copies(rule, 2, 4);
      return std::vector{output(rule.dtype(2), {rule.dim(0, 0), rule.dim(2, 1)})};
    },
    .cost = product_cost,
};

const OpDef grouped_linear_fp8_dgrad{
    .kind = "grouped_linear_fp8_dgrad",
    .operands = "dy w offsets copies?", .results = "dx",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      rule.require(rule.size(0, 1) == rule.size(1, 1), "dy's columns are not w's rows");
      check_groups(rule, 2, rule.size(1, 0), 3);
      check_copies(rule, 1, 3);
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), rule.dim(1, 2)})};
    },
    .cost = product_cost,
};

const OpDef grouped_linear_fp8_wgrad{
    .kind = "grouped_linear_fp8_wgrad",
    .operands = "q scales dy offsets", .results = "dcopies?", .updates = "acc", .attributes = "copies?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_rounded(rule);
      rule.require(rule.dim(0, 0) == rule.dim(2, 0), "q and dy differ in rows");
      const ir::Shape& acc = rule.updated(0).shape;
      rule.require(acc.size() == 3 && acc[1] == rule.dim(2, 1) && acc[2] == rule.dim(0, 1), "acc is not [E, N, K]");
      const int64_t copies = op.attributes.integer_or("copies", 0);
      check_groups(rule, 3, acc[0].count + copies, 4);
      if (copies == 0) return std::vector<Value>{};
      return std::vector{output(rule.updated(0).dtype, {fixed(copies), acc[1], acc[2]}, Role::gradient)};
    },
    .cost = product_cost,
};

struct Stands {
  std::string_view for_kind;
  const OpDef* def;
};
constexpr auto kStands = std::to_array<Stands>({{"linear", &linear_fp8},
                                                {"linear_dgrad", &linear_fp8_dgrad},
                                                {"linear_wgrad", &linear_fp8_wgrad},
                                                {"grouped_linear", &grouped_linear_fp8},
                                                {"grouped_linear_dgrad", &grouped_linear_fp8_dgrad},
                                                {"grouped_linear_wgrad", &grouped_linear_fp8_wgrad}});

}  // namespace

const OpDef* fp8_in_place_of(const OpDef& def) {
  for (const Stands& each : kStands) {
    if (each.for_kind == def.kind) return each.def;
  }
  return nullptr;
}

std::vector<const OpDef*> fp8_ops() {
  return {&round_rows,         &linear_fp8,         &linear_fp8_dgrad,        &linear_fp8_wgrad,
          &grouped_linear_fp8, &grouped_linear_fp8_dgrad, &grouped_linear_fp8_wgrad};
}

}  // namespace heddle::ops
