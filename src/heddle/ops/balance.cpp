// Balance by quantiles. It counts in bins, over a step, how far each expert's biased scores are from being chosen.
// From these follow the biases that would have had every expert chosen as often. T tokens, E experts, k chosen. See
// docs/features/bias_balance.md.
#include "heddle/ops/margin_bins.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

// clang-format off
const OpDef count_margins{
    .kind = "count_margins",
    .operands = "s bias", .updates = "margins", .attributes = "top_k",
    .replayable = false,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t experts = rule.size(0, 1), k = op.attributes.integer("top_k");
      rule.shape(1, {fixed(experts)});
      rule.require(k >= 1 && k < experts, "all experts are chosen");
      rule.require(rule.updated(0).shape == ir::Shape{fixed(experts), fixed(kMarginBins)}, "margins are not [E, bins]");
    }),
};

const OpDef quantile_bias_update{
    .kind = "quantile_bias_update",
    .operands = "margins hyper", .updates = "bias", .attributes = "top_k",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t experts = rule.updated(0).shape[0].count;
      rule.shape(0, {fixed(experts), fixed(kMarginBins)});
      rule.require(rule.in(1).shape == ir::Shape{fixed(4)}, "hyper is not [4]");
      rule.require(op.attributes.integer("top_k") < experts, "all experts are chosen");
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> balance_ops() { return {&count_margins, &quantile_bias_update}; }

}  // namespace heddle::ops
