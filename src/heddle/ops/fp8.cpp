// Linear maps whose operands are rounded to eight bits, e4m3 in blocks of 128 that share a scale
// (ops/fp8_blocks.h), and the rounding of rows that are kept so. T rows, K in, N out; R rows sorted by expert, E
// experts; w is [N, K] or [E, N, K]; ⌈K/128⌉ scales a row. q holds bytes of e4m3, scales those of powers of two.
//
// A block of rows is 128 columns of one row, where a product sums over columns. For the gradient of a weight, which
// sums over rows, it is 128 rows of one column, from the first row of each expert on. A block of a weight is 128 ×
// 128. The blocks at the ends are smaller. Sums are of X's accumulation type, as those of the maps that these stand
// in for (ops/linear.cpp, ops/grouped_linear.cpp), of which they have the shapes.
//
// Source: DeepSeek-V3 Technical Report, arXiv 2412.19437, section 3.3.
#include "heddle/ops/fp8.h"

#include <array>

#include "heddle/ops/fp8_blocks.h"
#include "heddle/ops/product_shapes.h"

namespace heddle::ops {

namespace {

// Operands 0 and 1: rows and their scales.
void check_rounded(const Rule& rule) {
  rule.require(rule.dtype(0) == Dtype::u8 && rule.dtype(1) == Dtype::u8, "q and scales are not bytes");
  rule.shape(1, {rule.dim(0, 0), fixed(fp8::blocks_of(rule.size(0, 1)))});
}

// The shape of the scales of a weight's bytes, of as many dims.
ir::Shape scales_of_blocks(ir::Shape shape) {
  for (size_t i = shape.size() - 2; i < shape.size(); ++i) shape[i] = fixed(fp8::blocks_of(shape[i].count));
  return shape;
}
ir::Shape turned_form(ir::Shape shape) {
  std::swap(shape[shape.size() - 2], shape.back());
  return shape;
}

// True if the weight, operand `w`, is one that round_weight has rounded: bytes with their scales.
bool check_rounded_weight(const Rule& rule, size_t w, size_t scales) {
  if (!rule.has(scales)) return false;
  rule.require(rule.dtype(w) == Dtype::u8 && rule.dtype(scales) == Dtype::u8, "w and its scales are not bytes");
  rule.shape(scales, scales_of_blocks(rule.in(w).shape));
  return true;
}
// The type of a forward product: that of the weight, which an attribute names where the weight is bytes.
Dtype product_type(const Rule& rule, const Op& op, size_t scales) {
  if (!check_rounded_weight(rule, 2, scales)) return rule.dtype(2);
  return dtype_named(op.attributes.word("dtype"));
}

// clang-format off
const OpDef round_rows{
    .kind = "round_rows",
    .operands = "x", .results = "q scales",
    .by_row = "x q scales",
    .infer = by_rule([](const Rule& rule) {
      return std::vector{output(Dtype::u8, {rule.dim(0, 0), rule.dim(0, 1)}),
                         output(Dtype::u8, {rule.dim(0, 0), fixed(fp8::blocks_of(rule.size(0, 1)))})};
    }),
};

// Both forms of a weight, the second for the input gradients of backends that read it so.
const OpDef round_weight{
    .kind = "round_weight",
    .operands = "w", .updates = "q scales turned? turned_scales?",
    .overwrites = "q scales turned turned_scales",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(op.updates.size() == 2 || op.updates.size() == 4, "makes bytes with scales, once or twice");
      for (size_t i = 0; i < op.updates.size(); i += 2) {
        const ir::Shape form = i == 0 ? rule.in(0).shape : turned_form(rule.in(0).shape);
        const Value &bytes = rule.updated(i), &scales = rule.updated(i + 1);
        rule.require(bytes.dtype == Dtype::u8 && scales.dtype == Dtype::u8 && bytes.shape == form &&
                         scales.shape == scales_of_blocks(form),
                     "does not make w's bytes and their scales");
      }
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      Cost cost;
      for (const auto* ids : {&op.in, &op.updates}) {
        for (const ValueId id : *ids) cost.bytes += static_cast<double>(listing.bytes(id, rows));
      }
      return cost;
    },
};

const OpDef linear_fp8{
    .kind = "linear_fp8",
    .operands = "q scales w bias? w_scales?", .results = "y", .attributes = "dtype?",
    .by_row = "q scales y",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_rounded(rule);
      return linear_shape(rule, 2, product_type(rule, op, 4));
    }),
    .cost = product_cost,
};

const OpDef linear_fp8_dgrad{
    .kind = "linear_fp8_dgrad",
    .operands = "dy w w_scales?", .results = "dx", .attributes = "dtype turned?",
    .by_row = "dy dx",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_rounded_weight(rule, 1, 2);
      return linear_dgrad_shape(rule, op);
    }),
    .cost = product_cost,
};

const OpDef linear_fp8_wgrad{
    .kind = "linear_fp8_wgrad",
    .operands = "q scales dy", .updates = "acc bias_acc?",
    .infer = by_rule([](const Rule& rule) {
      check_rounded(rule);
      return linear_wgrad_shape(rule, 2);
    }),
    .cost = product_cost,
};

const OpDef grouped_linear_fp8{
    .kind = "grouped_linear_fp8",
    .operands = "q scales w offsets copies? w_scales?", .results = "y", .attributes = "dtype?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_rounded(rule);
      return grouped_shape(rule, 2, product_type(rule, op, 5));
    }),
    .cost = product_cost,
};

const OpDef grouped_linear_fp8_dgrad{
    .kind = "grouped_linear_fp8_dgrad",
    .operands = "dy w offsets copies? w_scales?", .results = "dx", .attributes = "turned?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_rounded_weight(rule, 1, 4);
      return grouped_dgrad_shape(rule, op);
    }),
    .cost = product_cost,
};

const OpDef grouped_linear_fp8_wgrad{
    .kind = "grouped_linear_fp8_wgrad",
    .operands = "q scales dy offsets", .results = "dcopies?", .updates = "acc", .attributes = "copies?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_rounded(rule);
      return grouped_wgrad_shape(rule, op, 2);
    }),
    .cost = product_cost,
};
// clang-format on

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
  return {&round_rows,
          &round_weight,
          &linear_fp8,
          &linear_fp8_dgrad,
          &linear_fp8_wgrad,
          &grouped_linear_fp8,
          &grouped_linear_fp8_dgrad,
          &grouped_linear_fp8_wgrad};
}

}  // namespace heddle::ops
