// One linear map an expert, over rows sorted by expert: rows offsets[e]..offsets[e+1] use w_e. Its bias is added to
// those rows, or, behind the last map, to the tokens' sums of them. R rows, E experts, K in, N out; w is [E, N, K];
// offsets i32[E+1]. T tokens, k experts a token. Copies of other ranks' experts (ops/experts/replicas.cpp), [C, N,
// K], have the last C groups of rows. Their gradient is a result beside the sum of the others'.
#include <optional>

#include "heddle/ir/product_way.h"
#include "heddle/ops/experts/expert_bias.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/product_shapes.h"

namespace heddle::ops {

namespace {

extern const OpDef grouped_linear_dgrad, grouped_linear_wgrad, add_expert_bias_wgrad, gated_bias_dgrad,
    gated_bias_wgrad;

// `way` (ir/product_way.h) says which kernel is to run, passes/product_ways.h by what; grouped where it is absent.
void check_way(const Rule& rule, const Op& op) {
  if (!op.attributes.has("way")) return;
  const std::optional<ProductWay> way = find_word<ProductWay>(op.attributes.word("way"));
  rule.require(way == ProductWay::batched || way == ProductWay::serial,
               "has a way that is neither batched nor serial");
}

// clang-format off
const OpDef grouped_linear{
    .kind = "grouped_linear",
    .operands = "x w offsets copies?", .results = "y", .attributes = "way?",
    .linear_map = true,
    .packable = "w",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_way(rule, op);
      return grouped_shape(rule, 1, rule.dtype(0));
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId x = op.in[0], w = op.in[1], offsets = op.in[2], copies = operand(op, 3), dy = d_out[0];
      std::vector<ValueId> in{dy, w, offsets};
      if (copies != none) in.push_back(copies);
      const ValueId dx =
          writer.wants_gradient(x) ? writer.input_gradient(grouped_linear_dgrad, in, {writer.d(x)})[0] : none;
      if (copies == none || writer.listing().value(w).frozen) {  // copies of what is frozen have no gradient either
        writer.weight_gradient(grouped_linear_wgrad, {x, dy, offsets}, {w});
        std::vector<ValueId> d_in(op.in.size(), none);
        d_in[0] = dx;
        return d_in;
      }
      const int64_t count = writer.listing().value(copies).shape[0].count;
      const ValueId d_copies =
          writer.weight_gradient(grouped_linear_wgrad, {x, dy, offsets}, w, {writer.d(copies)}, {{"copies", count}})[0];
      return std::vector{dx, none, none, d_copies};
    },
    .cost = product_cost,
};

const OpDef grouped_linear_dgrad{
    .kind = "grouped_linear_dgrad",
    .operands = "dy w offsets copies?", .results = "dx", .attributes = "way?",
    .packable = "w",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_way(rule, op);
      return grouped_dgrad_shape(rule, op);
    }),
    .cost = product_cost,
};

const OpDef grouped_linear_wgrad{
    .kind = "grouped_linear_wgrad",
    .operands = "x dy offsets", .results = "dcopies?", .updates = "acc", .attributes = "copies? way?",
    .exact = "grouped_linear_wgrad_exact",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      check_way(rule, op);
      return grouped_wgrad_shape(rule, op, 1);
    }),
    .cost = product_cost,
};

const OpDef add_expert_bias{
    .kind = "add_expert_bias",
    .operands = "x bias offsets copies?", .results = "y",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.size(0, 1) == rule.size(1, 1), "x and bias differ in columns");
      check_offsets(rule, 2, rule.size(1, 0) + copies_of_bias(rule, 1));
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = d_out[0];
      bias_gradient(writer, op, d_out[0], d_in);
      return d_in;
    },
};
// clang-format on

// And, where there are copies, what these have of it, which is no sum of microbatches.
std::vector<Value> check_bias_sums(const Rule& rule, const Op& op) {
  const ir::Shape& sum = rule.updated(0).shape;
  const int64_t copies = op.attributes.integer_or("copies", 0);
  rule.require(sum.size() == 2 && sum[1] == rule.dim(0, 1), "the sum is not [E, N]");
  check_offsets(rule, 1, sum[0].count + copies);
  if (copies == 0) return {};
  return {output(rule.updated(0).dtype, {fixed(copies), sum[1]}, Role::gradient)};
}

// clang-format off
const OpDef add_expert_bias_wgrad{
    .kind = "add_expert_bias_wgrad",
    .operands = "dy offsets", .results = "dcopies?", .updates = "acc", .attributes = "copies?",
    .exact = "add_expert_bias_wgrad_exact",
    .infer = [](const Listing& listing, const Op& op) { return check_bias_sums(Rule(listing, op), op); },
};

// Each source rank's rows are a partial of their own.
const OpDef add_expert_bias_wgrad_exact{
    .kind = "add_expert_bias_wgrad_exact",
    .operands = "dy offsets counts?", .results = "dcopies?", .updates = "sum", .attributes = "copies?",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      const int64_t slots = rule.updated(0).shape[0].count + op.attributes.integer_or("copies", 0);
      if (rule.has(2)) rule.require(rule.size(2, 2) == slots, "counts and sum differ in experts");
      return check_bias_sums(rule, op);
    }),
};

// The bias of the map behind which a token's rows are summed by their gates: sums of rows with biases are those of the
// rows and those of the biases. The rows may then be parts of sums (etp), and lie wherever they do: each token adds its
// biases once, on the rank that it is of.
const OpDef gated_bias{
    .kind = "gated_bias",
    .operands = "gates experts bias", .results = "y", .attributes = "dtype",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.shape(1, rule.in(0).shape);
      rule.require(rule.in(2).shape.size() == 2, "bias is not [E, H]");
      return std::vector{output(dtype_named(op.attributes.word("dtype")), {rule.dim(0, 0), rule.dim(2, 1)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      const ValueId gates = op.in[0], experts = op.in[1], bias = op.in[2], dy = d_out[0];
      const ValueId dgates = writer.input_gradient(gated_bias_dgrad, {dy, experts, bias}, {writer.d(gates)})[0];
      writer.weight_gradient(gated_bias_wgrad, {dy, gates, experts}, {bias});
      return std::vector{dgates, none, none};
    },
};

const OpDef gated_bias_dgrad{
    .kind = "gated_bias_dgrad",
    .operands = "dy experts bias", .results = "dgates",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.size(0, 1) == rule.size(2, 1), "dy and bias differ in columns");
      return std::vector{output(wide(rule.dtype(0)), rule.in(1).shape)};
    }),
};

const OpDef gated_bias_wgrad{
    .kind = "gated_bias_wgrad",
    .operands = "dy gates experts", .updates = "acc",
    .infer = by_rule([](const Rule& rule) {
      rule.shape(2, rule.in(1).shape);
      const ir::Shape& acc = rule.updated(0).shape;
      rule.require(acc.size() == 2 && acc[1] == rule.dim(0, 1), "acc is not [E, H]");
    }),
};
// clang-format on

}  // namespace

int64_t copies_of_bias(const Rule& rule, size_t bias) {
  if (!rule.has(bias + 2)) return 0;
  const Value &own = rule.in(bias), &copies = rule.in(bias + 2);
  rule.require(copies.shape.size() == 2 && copies.shape[1] == own.shape[1] && copies.dtype == own.dtype,
               "replicas are not like bias");
  return copies.shape[0].count;
}

void bias_gradient(GradientWriter& writer, const Op& op, ValueId dy, std::vector<ValueId>& d_in) {
  const ValueId bias = op.in[1], offsets = op.in[2], copies = operand(op, 3);
  if (copies == none || writer.listing().value(bias).frozen) {
    writer.weight_gradient(add_expert_bias_wgrad, {dy, offsets}, {bias});
    return;
  }
  const int64_t count = writer.listing().value(copies).shape[0].count;
  d_in[3] = writer.weight_gradient(add_expert_bias_wgrad, {dy, offsets}, bias, {writer.d(copies)},
                                   {{"copies", count}})[0];
}

std::vector<const OpDef*> grouped_linear_ops() {
  return {&grouped_linear,  &grouped_linear_dgrad,  &grouped_linear_wgrad,
          &add_expert_bias, &add_expert_bias_wgrad, &add_expert_bias_wgrad_exact,
          &gated_bias,      &gated_bias_dgrad,      &gated_bias_wgrad};
}

}  // namespace heddle::ops
