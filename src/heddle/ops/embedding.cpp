// Token embedding: x_t = w[ids_t]. T tokens, V vocabulary, H hidden. With `each` a row of x is the rows of so many
// ids, one behind the other.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef embedding_wgrad;

int64_t ids_of_row(const Op& op) { return op.attributes.integer_or("each", 1); }

// clang-format off
const OpDef embedding{
    .kind = "embedding",
    .operands = "ids w", .results = "x", .attributes = "each?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      if (ids_of_row(op) == 1) return std::vector{output(rule.dtype(1), {rule.dim(0, 0), rule.dim(1, 1)})};
      const int64_t rows = rule.quotient(rule.size(0, 0), ids_of_row(op), "ids are not those of whole rows");
      return std::vector{output(rule.dtype(1), {fixed(rows), fixed(ids_of_row(op) * rule.size(1, 1))})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      writer.weight_gradient(embedding_wgrad, {d_out[0], op.in[0]}, {op.in[1]}, op.attributes);
      return std::vector{none, none};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = 2.0 * static_cast<double>(listing.bytes(op.out[0], rows))};
    },
};

const OpDef embedding_wgrad{
    .kind = "embedding_wgrad",
    .operands = "dx ids", .updates = "acc", .attributes = "each?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.shape(1, {ids_of_row(op) == 1 ? rule.dim(0, 0) : fixed(ids_of_row(op) * rule.size(0, 0))});
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> embedding_ops() { return {&embedding, &embedding_wgrad}; }

}  // namespace heddle::ops
