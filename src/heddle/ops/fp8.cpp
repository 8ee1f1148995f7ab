// Linear maps whose operands are rounded to eight bits, e4m3 in blocks of 128 that share a scale (ops/fp8_blocks.h),
// and the rounding of rows that are kept so. T rows, K in, N out; R rows sorted by expert, E experts; w is [N, K] or
// [E, N, K]; ⌈K/128⌉ scales a row. q holds bytes of e4m3, scales those of powers of two.
//
// A block of rows is 128 columns of one row, where a product sums over columns. For the gradient of a weight, which
// sums over rows, it is 128 rows of one column, from the first row of each expert on. A block of a weight is 128 × 128.
// The blocks at the ends are smaller. Sums are of X's accumulation type, as those of the maps that these stand in for
// (ops/linear.cpp, ops/grouped_linear.cpp), of which they have the shapes.
//
// Source: DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.
#include <array>

#include "heddle/ops/fp8_blocks.h"
#include "heddle/ops/fp8.h"
#include "heddle/ops/product_shapes.h"

namespace heddle::ops {

namespace {

// Operands 0 and 1: rows and their scales.
void check_rounded(const Rule& rule) {
  rule.require(rule.dtype(0) == Dtype::u8 && rule.dtype(1) == Dtype::u8, "q and scales are not bytes");
  rule.shape(1, {rule.dim(0, 0), fixed(fp8::blocks_of(rule.size(0, 1)))});
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
      return linear_shape(rule, 2, rule.dtype(2));
    },
    .cost = product_cost,
};

const OpDef linear_fp8_dgrad{
    .kind = "linear_fp8_dgrad",
    .operands = "dy w", .results = "dx", .attributes = "dtype",
    .by_row = "dy dx",
    .infer = [](const Listing& listing, const Op& op) { return linear_dgrad_shape(Rule(listing, op), op); },
    .cost = product_cost,
};

const OpDef linear_fp8_wgrad{
    .kind = "linear_fp8_wgrad",
    .operands = "q scales dy", .updates = "acc bias_acc?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_rounded(rule);
      return linear_wgrad_shape(rule, 2);
    },
    .cost = product_cost,
};

const OpDef grouped_linear_fp8{
    .kind = "grouped_linear_fp8",
    .operands = "q scales w offsets copies?", .results = "y",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_rounded(rule);
      return grouped_shape(rule, 2, rule.dtype(2));
    },
    .cost = product_cost,
};

const OpDef grouped_linear_fp8_dgrad{
    .kind = "grouped_linear_fp8_dgrad",
    .operands = "dy w offsets copies?", .results = "dx",
    .infer = [](const Listing& listing, const Op& op) { return grouped_dgrad_shape(Rule(listing, op)); },
    .cost = product_cost,
};

const OpDef grouped_linear_fp8_wgrad{
    .kind = "grouped_linear_fp8_wgrad",
    .operands = "q scales dy offsets", .results = "dcopies?", .updates = "acc", .attributes = "copies?",
    .infer = [](const Listing& listing, const Op& op) {
      const Rule rule(listing, op);
      check_rounded(rule);
      return grouped_wgrad_shape(rule, op, 2);
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
