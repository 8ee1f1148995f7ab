// The router: scores, group-limited choice with a balancing bias, gate weights (DeepSeek-V3, arXiv 2412.19437,
// section 2.1.2, eqs. 12–16), fused and in its parts; expert load and the update of the bias.
// T tokens, E experts, k chosen, R = T·k rows sorted by (expert, token).
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef router_scores_dgrad, gate_dgrad, mixer_gate_dgrad, router_dgrad;

void check_choice(const Rule& rule, const Attributes& a, int64_t experts) {
  const int64_t groups = a.integer("groups"), top_groups = a.integer("top_groups"), k = a.integer("top_k");
  rule.require(groups >= 1 && experts % groups == 0, "experts is not a multiple of groups");
  rule.require(top_groups >= 1 && top_groups <= groups, "top_groups is outside 1..groups");
  rule.require(k >= 1 && k <= top_groups * (experts / groups), "top_k exceeds the experts of the chosen groups");
  rule.require(a.integer("group_score_top") <= experts / groups, "group_score_top exceeds the experts of a group");
}

// experts, row_of, token_of, offsets
std::vector<Value> choice_outputs(int64_t tokens, int64_t experts, int64_t top_k) {
  return {output(Dtype::i32, {fixed(tokens), fixed(top_k)}, Role::metadata),
          output(Dtype::i32, {fixed(tokens), fixed(top_k)}, Role::metadata),
          output(Dtype::i32, {fixed(tokens * top_k)}, Role::metadata),
          output(Dtype::i32, {fixed(experts + 1)}, Role::metadata)};
}

// clang-format off
const OpDef router_scores{
    .kind = "router_scores",
    .operands = "logits", .results = "s", .attributes = "function",
    .infer = by_rule([](const Rule& rule) { return std::vector{rule.like(0)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(router_scores_dgrad, {d_out[0], op.out[0]}, {writer.d(op.in[0])}, op.attributes);
    },
};

const OpDef router_scores_dgrad{
    .kind = "router_scores_dgrad",
    .operands = "ds s", .results = "dlogits", .attributes = "function",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      return std::vector{rule.like(1)};
    }),
};

const OpDef choose{
    .kind = "choose",
    .operands = "s bias?", .results = "experts row_of token_of offsets",
    .attributes = "top_k groups top_groups group_score_top",
    .replayable = false,
    .chooses_experts = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      if (rule.has(1)) rule.shape(1, {rule.dim(0, 1)});
      check_choice(rule, op.attributes, rule.size(0, 1));
      return choice_outputs(rule.size(0, 0), rule.size(0, 1), op.attributes.integer("top_k"));
    }),
};

// Experts by a table of token ids, [vocabulary, k] (DeepSeek-V4). Padding, −1, has those of id 0.
const OpDef choose_by_id{
    .kind = "choose_by_id",
    .operands = "ids table", .results = "experts row_of token_of offsets",
    .attributes = "experts",
    .replayable = false,
    .chooses_experts = true,
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t experts = op.attributes.integer("experts"), top_k = rule.size(1, 1);
      rule.require(rule.dtype(0) == Dtype::i32, "ids are not i32");
      rule.require(top_k >= 1 && top_k <= experts, "the table's rows are not 1..experts wide");
      return choice_outputs(rule.size(0, 0), experts, top_k);
    }),
    .cost = [](const Listing& listing, const Op& op, const RowCounts& rows) {
      // A row of the table is read for each token, and its experts are written, read and sorted.
      const double chosen = static_cast<double>(listing.bytes(op.out[0], rows));
      return Cost{.bytes = static_cast<double>(listing.bytes(op.in[0], rows)) + 5 * chosen};
    },
};

const OpDef gate{
    .kind = "gate",
    .operands = "s experts", .results = "gates", .attributes = "normalize scale",
    .infer = by_rule([](const Rule& rule) { return std::vector{output(rule.dtype(0), rule.in(1).shape)}; }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId ds = writer.input_gradient(gate_dgrad, {d_out[0], op.in[0], op.in[1]}, {writer.d(op.in[0])},
                                               op.attributes)[0];
      return std::vector{ds, none};
    },
};

const OpDef gate_dgrad{
    .kind = "gate_dgrad",
    .operands = "dgates s experts", .results = "ds", .attributes = "normalize scale",
    .infer = by_rule([](const Rule& rule) { return std::vector{rule.like(1)}; }),
};

// Gates of 1, which nothing is learned by: the real ones have multiplied what experts read.
const OpDef unit_gates{
    .kind = "unit_gates",
    .operands = "experts", .results = "gates", .attributes = "dtype",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      return std::vector{output(wide(dtype_named(op.attributes.word("dtype"))), rule.in(0).shape, Role::metadata)};
    }),
};

// Gates of two experts, the one with the larger logit first (Liu et al., arXiv 2409.12136, appendix A).
const OpDef mixer_gate{
    .kind = "mixer_gate",
    .operands = "logits experts", .results = "gates", .attributes = "closeness",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.size(1, 1) == 2 && rule.size(0, 1) >= 2, "two experts are mixed");
      return std::vector{output(rule.dtype(0), rule.in(1).shape)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId dlogits = writer.input_gradient(mixer_gate_dgrad, {d_out[0], op.in[0], op.in[1]},
                                                    {writer.d(op.in[0])}, op.attributes)[0];
      return std::vector{dlogits, none};
    },
};

const OpDef mixer_gate_dgrad{
    .kind = "mixer_gate_dgrad",
    .operands = "dgates logits experts", .results = "dlogits", .attributes = "closeness",
    .infer = by_rule([](const Rule& rule) { return std::vector{rule.like(1)}; }),
};

const OpDef router{
    .kind = "router",
    .operands = "logits bias?", .results = "s gates experts row_of token_of offsets",
    .attributes = "function top_k groups top_groups group_score_top normalize scale",
    .replayable = false,
    .chooses_experts = true,
    .stands_for = "s = router_scores logits\n"
                  "experts row_of token_of offsets = choose s bias\n"
                  "gates = gate s experts",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      if (rule.has(1)) rule.shape(1, {rule.dim(0, 1)});
      check_choice(rule, op.attributes, rule.size(0, 1));
      const int64_t top_k = op.attributes.integer("top_k");
      std::vector<Value> out{rule.like(0),
                             output(rule.dtype(0), {rule.dim(0, 0), fixed(top_k)})};
      for (Value& v : choice_outputs(rule.size(0, 0), rule.size(0, 1), top_k)) out.push_back(std::move(v));
      return out;
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId s = op.out[0], experts = op.out[2];
      const ValueId dlogits = writer.input_gradient(router_dgrad, {d_out[1], d_out[0], s, experts},
                                                    {writer.d(op.in[0])}, op.attributes)[0];
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = dlogits;
      return d_in;
    },
};

const OpDef router_dgrad{
    .kind = "router_dgrad",
    .operands = "dgates? ds? s experts", .results = "dlogits",
    .attributes = "function top_k groups top_groups group_score_top normalize scale",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.has(0) || rule.has(1), "neither dg nor ds is given");
      return std::vector{rule.like(2)};
    }),
};

const OpDef count_load{
    .kind = "count_load",
    .operands = "offsets", .updates = "load",
    .replayable = false,
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.updated(0).shape == ir::Shape{fixed(rule.size(0, 0) - 1)}, "load is not [E]");
    }),
};

const OpDef router_bias_update{
    .kind = "router_bias_update",
    .operands = "load hyper", .updates = "bias", .attributes = "by_share?",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.in(0).shape == rule.updated(0).shape, "load and bias differ in shape");
      rule.require(rule.in(1).shape == ir::Shape{fixed(4)}, "hyper is not [4]");
    }),
};
// clang-format on

}  // namespace

std::vector<const OpDef*> router_ops() {
  return {&router_scores,     &router_scores_dgrad, &choose,           &choose_by_id, &gate,         &gate_dgrad,
          &unit_gates,        &mixer_gate,          &mixer_gate_dgrad, &router,       &router_dgrad, &count_load,
          &router_bias_update};
}

}  // namespace heddle::ops
