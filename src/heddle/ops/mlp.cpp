// Activation functions. SwiGLU (Shazeer, arXiv 2002.05202) is fused and in its parts; clamped SwiGLU is that of the
// released code of GPT-OSS. GELU (Hendrycks and Gimpel, arXiv 1606.08415) comes with its bias, by the error
// function or, with `tanh`, by its approximation. Gates by a sigmoid (arXiv 2505.06708), or by ln(1 + e^x) with
// `softplus`: each of a gate's columns is of a run of equally many columns of x. Soft caps of logits: c·tanh(x ÷ c)
// (arXiv 2408.00118). Clips, which Step-3.5 has around SwiGLU. Squared ReLU (So et al., arXiv 2109.08668). T rows;
// u has 2F columns, gate then up.
#include "heddle/ops/experts/expert_bias.h"
#include "heddle/ops/ops.h"
#include "heddle/ops/rule.h"

namespace heddle::ops {

namespace {

extern const OpDef swiglu_dgrad, clamped_swiglu_dgrad, silu_dgrad, multiply_dgrad, gelu_dgrad, sigmoid_gate_dgrad,
    soft_cap_dgrad, clip_dgrad;

// du (and dbias, handed to W) of an activation with an optional bias as its second operand.
std::vector<ValueId> biased_gradient(GradientWriter& writer, const OpDef& def, const Op& op, ValueId dy) {
  const ValueId x = op.in[0], bias = operand(op, 1);
  std::vector<ValueId> d_in(op.in.size(), none);
  if (bias == none) {
    d_in[0] = writer.input_gradient(def, {dy, x}, {writer.d(x)}, op.attributes)[0];
  } else {
    const auto out = writer.input_gradient(def, {dy, x, bias}, {writer.d(x), writer.d(bias)}, op.attributes);
    d_in[0] = out[0];
    writer.weight_gradient(find("accumulate"), {out[1]}, {bias});
  }
  return d_in;
}

std::vector<Value> biased_gradient_outputs(const Rule& rule) {
  std::vector<Value> out{rule.like(1)};
  if (rule.has(2)) out.push_back(output(wide(rule.dtype(1)), {rule.dim(1, 1)}));
  return out;
}

// The result of an op on x alone, of its shape.
std::vector<Value> like_x(const Listing& listing, const Op& op) { return {Rule(listing, op).like(0)}; }

// The gradient of an op on x alone, by an op on dy and x with the same attributes.
template <const OpDef& kGradient>
std::vector<ValueId> gradient_of_x(GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
  return writer.input_gradient(kGradient, {d_out[0], op.in[0]}, {writer.d(op.in[0])}, op.attributes);
}

// The result of an op on dy and x, of one shape.
std::vector<Value> gradient_like_x(const Listing& listing, const Op& op) {
  const Rule rule(listing, op);
  rule.same(0, 1);
  return {rule.like(1)};
}

// clang-format off
const OpDef swiglu{
    .kind = "swiglu",
    .operands = "u bias?", .results = "a",
    .work = ir::Work::activation,
    .by_row = "u a",
    .stands_for = "gate up = split u\n"
                  "half = silu gate\n"
                  "a = multiply half up",
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.size(0, 1) % 2 == 0, "columns are odd");
      if (rule.has(1)) rule.shape(1, {rule.dim(0, 1)});
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(rule.size(0, 1) / 2)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return biased_gradient(writer, swiglu_dgrad, op, d_out[0]);
    },
};

const OpDef swiglu_dgrad{
    .kind = "swiglu_dgrad",
    .operands = "da u bias?", .results = "du dbias?",
    .by_row = "da u du",
    .infer = [](const Listing& listing, const Op& op) { return biased_gradient_outputs(Rule(listing, op)); },
};
// clang-format on

// A bias is one an expert, of rows that are sorted by expert (grouped_linear.cpp).
void check_expert_bias(const Rule& rule, size_t bias) {
  rule.require(rule.has(bias) == rule.has(bias + 1), "a bias without offsets, or offsets without a bias");
  if (!rule.has(bias)) return;
  rule.require(rule.in(bias).shape.size() == 2 && rule.dim(bias, 1) == rule.dim(bias - 1, 1),
               "bias is not [E, 2F]");
  rule.shape(bias + 1, {fixed(rule.size(bias, 0) + copies_of_bias(rule, bias) + 1)});
}

// clang-format off
const OpDef clamped_swiglu{
    .kind = "clamped_swiglu",
    .operands = "u bias? offsets? copies?", .results = "a", .attributes = "alpha limit",
    .work = ir::Work::activation,
    .infer = by_rule([](const Rule& rule) {
      rule.require(rule.size(0, 1) % 2 == 0, "columns are odd");
      check_expert_bias(rule, 1);
      return std::vector{output(rule.dtype(0), {rule.dim(0, 0), fixed(rule.size(0, 1) / 2)})};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      std::vector<ValueId> in{d_out[0]};
      in.insert(in.end(), op.in.begin(), op.in.end());
      std::vector<ValueId> d_in(op.in.size(), none);
      d_in[0] = writer.input_gradient(clamped_swiglu_dgrad, in, {writer.d(op.in[0])}, op.attributes)[0];
      if (operand(op, 1) != none) bias_gradient(writer, op, d_in[0], d_in);
      return d_in;
    },
};

const OpDef clamped_swiglu_dgrad{
    .kind = "clamped_swiglu_dgrad",
    .operands = "da u bias? offsets? copies?", .results = "du", .attributes = "alpha limit",
    .infer = by_rule([](const Rule& rule) {
      check_expert_bias(rule, 2);
      return std::vector{rule.like(1)};
    }),
};

const OpDef silu{
    .kind = "silu",
    .operands = "x", .results = "y",
    .work = ir::Work::activation,
    .by_row = "x y",
    .infer = like_x,
    .differentiate = gradient_of_x<silu_dgrad>,
};

const OpDef silu_dgrad{
    .kind = "silu_dgrad",
    .operands = "dy x", .results = "dx",
    .by_row = "dy x dx",
    .infer = gradient_like_x,
};

const OpDef multiply{
    .kind = "multiply",
    .operands = "a b", .results = "y",
    .work = ir::Work::activation,
    .by_row = "a b y",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(multiply_dgrad, {d_out[0], op.in[0], op.in[1]},
                                   {writer.d(op.in[0]), writer.d(op.in[1])});
    },
};

const OpDef multiply_dgrad{
    .kind = "multiply_dgrad",
    .operands = "dy a b", .results = "da db",
    .by_row = "dy a b da db",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      rule.same(1, 2);
      return std::vector{rule.like(1), rule.like(2)};
    }),
};

const OpDef gelu{
    .kind = "gelu",
    .operands = "x bias?", .results = "y", .attributes = "tanh?",
    .work = ir::Work::activation,
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule) {
      if (rule.has(1)) rule.shape(1, {rule.dim(0, 1)});
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return biased_gradient(writer, gelu_dgrad, op, d_out[0]);
    },
};

const OpDef gelu_dgrad{
    .kind = "gelu_dgrad",
    .operands = "dy x bias?", .results = "dx dbias?", .attributes = "tanh?",
    .by_row = "dy x dx",
    .infer = [](const Listing& listing, const Op& op) { return biased_gradient_outputs(Rule(listing, op)); },
};

void check_gate(const Rule& rule, size_t x, size_t gate) {
  rule.require(rule.in(gate).shape.size() == 2 && rule.dim(gate, 0) == rule.dim(x, 0), "a gate has other rows than x");
  rule.require(rule.size(gate, 1) > 0 && rule.size(x, 1) % rule.size(gate, 1) == 0,
               "columns are not a multiple of the gate's");
  rule.require(rule.dtype(gate) == rule.dtype(x), "a gate is of another type than x");
}

const OpDef sigmoid_gate{
    .kind = "sigmoid_gate",
    .operands = "x gate", .results = "y", .attributes = "softplus?",
    .work = ir::Work::activation,
    .by_row = "x gate y",
    .infer = by_rule([](const Rule& rule) {
      check_gate(rule, 0, 1);
      return std::vector{rule.like(0)};
    }),
    .differentiate = [](GradientWriter& writer, const Op& op, const std::vector<ValueId>& d_out) {
      return writer.input_gradient(sigmoid_gate_dgrad, {d_out[0], op.in[0], op.in[1]},
                                   {writer.d(op.in[0]), writer.d(op.in[1])}, op.attributes);
    },
};

const OpDef sigmoid_gate_dgrad{
    .kind = "sigmoid_gate_dgrad",
    .operands = "dy x gate", .results = "dx dgate", .attributes = "softplus?",
    .by_row = "dy x gate dx dgate",
    .infer = by_rule([](const Rule& rule) {
      rule.same(0, 1);
      check_gate(rule, 1, 2);
      return std::vector{rule.like(1), rule.like(2)};
    }),
};

const OpDef soft_cap{
    .kind = "soft_cap",
    .operands = "x", .results = "y", .attributes = "cap",
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(op.attributes.number("cap") > 0, "the cap is not above zero");
      return std::vector{rule.like(0)};
    }),
    .differentiate = gradient_of_x<soft_cap_dgrad>,
};

const OpDef soft_cap_dgrad{
    .kind = "soft_cap_dgrad",
    .operands = "dy x", .results = "dx", .attributes = "cap",
    .by_row = "dy x dx",
    .infer = gradient_like_x,
};

const OpDef clip{
    .kind = "clip",
    .operands = "x", .results = "y", .attributes = "limit below",
    .work = ir::Work::activation,
    .by_row = "x y",
    .infer = by_rule([](const Rule& rule, const Op& op) {
      rule.require(op.attributes.number("limit") > 0, "the limit is not above zero");
      return std::vector{rule.like(0)};
    }),
    .differentiate = gradient_of_x<clip_dgrad>,
};

const OpDef clip_dgrad{
    .kind = "clip_dgrad",
    .operands = "dy x", .results = "dx", .attributes = "limit below",
    .by_row = "dy x dx",
    .infer = gradient_like_x,
};

const OpDef squared_relu_dgrad{
    .kind = "squared_relu_dgrad",
    .operands = "dy x", .results = "dx",
    .by_row = "dy x dx",
    .infer = gradient_like_x,
};

const OpDef squared_relu{
    .kind = "squared_relu",
    .operands = "x", .results = "y",
    .work = ir::Work::activation,
    .by_row = "x y",
    .infer = like_x,
    .differentiate = gradient_of_x<squared_relu_dgrad>,
};
// clang-format on

}  // namespace

std::vector<const OpDef*> mlp_ops() {
  return {&swiglu,   &swiglu_dgrad,   &clamped_swiglu, &clamped_swiglu_dgrad, &silu,         &silu_dgrad,
          &multiply, &multiply_dgrad, &gelu,           &gelu_dgrad,           &sigmoid_gate, &sigmoid_gate_dgrad,
          &soft_cap, &soft_cap_dgrad, &clip,           &clip_dgrad,           &squared_relu, &squared_relu_dgrad};
}

}  // namespace heddle::ops
