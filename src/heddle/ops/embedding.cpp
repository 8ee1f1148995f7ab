// Token embedding: x_t = w[ids_t]. T tokens, V vocabulary, H hidden.
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef embedding_wgrad;

// clang-format off
const OpDef embedding{
    .kind = "embedding",
    .operands = "ids w", .results = "x",
    .infer = by_rule([](const Rule& rule) {
      return std::vector{output(rule.dtype(1), {rule.dim(0, 0), rule.dim(1, 1)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      writer.weight_gradient(embedding_wgrad, {d_out[0], op.in[0]}, {op.in[1]});
      return std::vector{none, none};
    },
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      return Cost{.bytes = 2.0 * static_cast<double>(listing.bytes(op.out[0], rows))};
    },
};

const OpDef embedding_wgrad{
    .kind = "embedding_wgrad",
    .operands = "dx ids", .updates = "acc",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(1, {rule.dim(0, 0)});
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> embedding_ops() { return {&embedding, &embedding_wgrad}; }

}  // namespace heddle::ops
