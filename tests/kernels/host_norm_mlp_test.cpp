// Norms, activations, additions and column movers of the CPU against reference, over widths that are no multiple of
// a vector, row counts around the blocks of partial sums, and no rows at all.
#include "heddle/backends/backend.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

class HostStream : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, HostStream, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

struct HostNormMlpSizes {
  int64_t T, W;
};
// The last needs more than one thread; 65 and 257 rows leave a partial block.
constexpr HostNormMlpSizes kSizesHostNormMlp[] = {{0, 5},   {1, 1},    {3, 7},    {65, 64},
                                                  {67, 33}, {5, 1029}, {257, 520}};

TEST_P(HostStream, norms) {
  const Dtype X = GetParam();
  for (const auto [T, W] : kSizesHostNormMlp) {
    const Operand x = activation(random_tensor(X, {T, W}, 1, 2)), r = activation(random_tensor(X, {T, W}, 2));
    const Operand g = weight(random_tensor(Dtype::f32, {W}, 3));
    const std::string size = fmt::format(" {}x{}", T, W);
    expect_gradient_like_reference({"rms_norm" + size, "rms_norm", {x, g}, {{"epsilon", 0.25}}, {}},
                                   stream_tolerance(X));
    const Operand heads = activation(random_tensor(X, {T, 3 * W}, 2));
    expect_gradient_like_reference({"rms_norm of heads" + size, "rms_norm", {heads, g}, {{"epsilon", 0.25}}, {}},
                                   stream_tolerance(X));
    expect_gradient_like_reference(
        {"rms_norm offset" + size, "rms_norm", {x, g}, {{"epsilon", 0.25}, {"offset", 1.0}}, {}},
        stream_tolerance(X));
    expect_gradient_like_reference({"add_rms_norm" + size, "add_rms_norm", {x, r, g}, {{"epsilon", 0.25}}, {}},
                                   stream_tolerance(X));
    expect_gradient_like_reference(
        {"add_rms_norm, no gradient of y" + size, "add_rms_norm", {x, r, g}, {{"epsilon", 0.25}}, {}},
        stream_tolerance(X), [](size_t i) { return i == 0; });
  }
}

TEST_P(HostStream, layer_norms) {
  const Dtype X = GetParam();
  for (const auto [T, W] : kSizesHostNormMlp) {
    const Operand x = activation(random_tensor(X, {T, W}, 1, 2)), r = activation(random_tensor(X, {T, W}, 2));
    const Operand g = weight(random_tensor(Dtype::f32, {W}, 3)), b = weight(random_tensor(Dtype::f32, {W}, 4));
    const std::string size = fmt::format(" {}x{}", T, W);
    expect_gradient_like_reference({"layer_norm" + size, "layer_norm", {x, g, b}, {{"epsilon", 0.25}}, {}},
                                   stream_tolerance(X));
    expect_gradient_like_reference(
        {"add_layer_norm" + size, "add_layer_norm", {x, r, g, b}, {{"epsilon", 0.25}}, {}}, stream_tolerance(X));
  }
}

// One word more or less and an element would be zero.
TEST_P(HostStream, dropout) {
  const Dtype X = GetParam();
  for (const auto [T, W] : kSizesHostNormMlp) {
    const Operand x = activation(random_tensor(X, {T, W}, 1)), r = activation(random_tensor(X, {T, W}, 2));
    const Operand b = weight(random_tensor(Dtype::f32, {W}, 4));
    Tensor numbers(Dtype::i32, {T});
    for (size_t t = 0; t < numbers.values.size(); ++t) numbers.values[t] = static_cast<double>(900'000'000 + 3 * t);
    const Operand tokens{numbers, Role::input};
    const Operand key{Tensor(Dtype::i32, {3}, std::vector<double>{-5, 11, 1 << 20}), Role::input};
    const std::string size = fmt::format(" {}x{}", T, W);
    const ir::Attributes attributes{{"rate", 0.1}, {"site", 291}};
    expect_gradient_like_reference({"dropout" + size, "dropout", {x, tokens, key}, attributes, {}},
                                   stream_tolerance(X));
    expect_gradient_like_reference({"dropout_add" + size, "dropout_add", {x, r, tokens, key, b}, attributes, {}},
                                   stream_tolerance(X));
    expect_gradient_like_reference({"dropout_add" + size, "dropout_add", {x, r, tokens, key}, attributes, {}},
                                   stream_tolerance(X));
  }
}

/// A sigmoid whose result is rounded to bf16 is within 1.4e-4 of itself before that. Two numbers this close round
/// to the same bf16 or to neighbours, and these are at most 2^-7 of themselves apart.
double sigmoid_tolerance(Dtype X) { return X == Dtype::bf16 ? 0x1p-7 : stream_tolerance(X); }

TEST_P(HostStream, activations) {
  const Dtype X = GetParam();
  for (const auto [T, W] : kSizesHostNormMlp) {
    const std::string size = fmt::format(" {}x{}", T, W);
    const Operand x = activation(random_tensor(X, {T, W}, 4, 4)), y = activation(random_tensor(X, {T, W}, 5));
    const Operand u = activation(random_tensor(X, {T, 2 * W}, 6, 4));
    expect_gradient_like_reference({"silu" + size, "silu", {x}, {}, {}}, sigmoid_tolerance(X));
    expect_gradient_like_reference({"multiply" + size, "multiply", {x, y}, {}, {}}, stream_tolerance(X));
    expect_gradient_like_reference({"scale" + size, "scale", {x}, {{"factor", 0.7}}, {}}, stream_tolerance(X));
    for (const int64_t runs : {int64_t{1}, int64_t{5}}) {
      const Operand wide = activation(random_tensor(X, {T, runs * W}, 9));
      expect_gradient_like_reference(
          {fmt::format("sigmoid_gate of {}{}", runs, size), "sigmoid_gate", {wide, x}, {}, {}},
          sigmoid_tolerance(X));
      expect_gradient_like_reference(
          {fmt::format("softplus gate of {}{}", runs, size), "sigmoid_gate", {wide, x}, {{"softplus", 1}}, {}},
          sigmoid_tolerance(X));
    }
    const Operand one = activation(random_tensor(X, {T, 1}, 10, 3));
    expect_gradient_like_reference({"sigmoid_gate of all" + size, "sigmoid_gate", {y, one}, {}, {}},
                                   sigmoid_tolerance(X));
    for (const double cap : {0.5, 4.0, 1000.0})
      expect_gradient_like_reference({"soft_cap" + size, "soft_cap", {x}, {{"cap", cap}}, {}},
                                     sigmoid_tolerance(X));
    for (const int64_t below : {0, 1})
      expect_gradient_like_reference({"clip" + size, "clip", {x}, {{"limit", 0.75}, {"below", below}}, {}},
                                     stream_tolerance(X));
    expect_gradient_like_reference({"squared_relu" + size, "squared_relu", {x}, {}, {}}, stream_tolerance(X));
    const Operand b = weight(random_tensor(Dtype::f32, {W}, 8));
    expect_gradient_like_reference({"add_bias" + size, "add_bias", {x, b}, {}, {}}, stream_tolerance(X));
    for (const bool with_bias : {false, true}) {
      const auto bias = [&](int64_t columns) {
        return with_bias ? weight(random_tensor(Dtype::f32, {columns}, 7)) : absent();
      };
      expect_gradient_like_reference({"swiglu" + size, "swiglu", {u, bias(2 * W)}, {}, {}}, sigmoid_tolerance(X));
      expect_gradient_like_reference({"gelu" + size, "gelu", {x, bias(W)}, {}, {}}, stream_tolerance(X));
      expect_gradient_like_reference({"gelu tanh" + size, "gelu", {x, bias(W)}, {{"tanh", 1}}, {}},
                                     stream_tolerance(X));
    }
  }
}

// Rows by six experts, of which some have none; and tokens of three experts each.
TEST_P(HostStream, biases_of_experts) {
  const Dtype X = GetParam();
  for (const auto [T, W] : kSizesHostNormMlp) {
    const std::string size = fmt::format(" {}x{}", T, W);
    const Routing routing = random_routing(T, 3, 6, 5, {0, 4});
    const int64_t R = 3 * T;
    const Operand u = activation(random_tensor(X, {R, 2 * W}, 6, 4));
    const Operand b = weight(random_tensor(Dtype::f32, {6, 2 * W}, 8));
    const ir::Attributes clamp{{"alpha", 1.702}, {"limit", 1.25}};
    expect_gradient_like_reference(
        {"add_expert_bias" + size, "add_expert_bias", {u, b, metadata(routing.offsets)}, {}, {}},
        stream_tolerance(X));
    expect_gradient_like_reference({"clamped_swiglu" + size, "clamped_swiglu", {u}, clamp, {}},
                                   sigmoid_tolerance(X));
    expect_gradient_like_reference(
        {"clamped_swiglu bias" + size, "clamped_swiglu", {u, b, metadata(routing.offsets)}, clamp, {}},
        sigmoid_tolerance(X));
    expect_gradient_like_reference(
        {"gated_bias" + size,
         "gated_bias",
         {activation(random_tensor(Dtype::f32, {T, 3}, 9)), metadata(routing.experts), b},
         {{"dtype", std::string(name_of(X))}},
         {}},
        stream_tolerance(X));
  }
}

TEST_P(HostStream, far_arguments_of_activations) {
  // Where e^x leaves the range of fp32, and around every binade before that.
  Tensor x(GetParam(), {1, 512});
  for (size_t i = 0; i < 512; ++i)
    x.values[i] = (i % 2 ? -1 : 1) * std::exp2(static_cast<double>(i / 2) / 16.0 - 8);
  for (const char* kind : {"silu", "gelu"}) {
    OpCase op{kind, kind, {activation(x)}, {}, {}};
    const double tolerance = op.kind == "silu" ? sigmoid_tolerance(GetParam()) : stream_tolerance(GetParam());
    if (op.kind == "gelu") op.in.push_back(absent());
    const OpResult expected = run_op(op, kernels::reference_kernels());
    for (const int64_t target : instruction_sets()) {
      const InstructionSet set(target);
      const OpResult found = run_op(op, kernels::host_kernels());
      for (size_t i = 0; i < 512; ++i) {
        const double wanted = expected.out[0].values[i], got = found.out[0].values[i];
        EXPECT_NEAR(got, wanted, tolerance * std::abs(wanted) + 1e-6)
            << kind << "(" << x.values[i] << ") with " << hwy::TargetName(target);
      }
    }
  }
}

TEST_P(HostStream, sums_and_columns) {
  const Dtype X = GetParam();
  for (const auto [T, W] : kSizesHostNormMlp) {
    const std::string size = fmt::format(" {}x{}", T, W);
    const Operand a = activation(random_tensor(X, {T, W}, 8)), b = activation(random_tensor(X, {T, W}, 9));
    expect_like_reference({"add" + size, "add", {a, b}, {}, {}}, 0);
    for (const bool overwrite : {true, false}) {
      expect_like_reference({"accumulate" + size, "accumulate", {a}, {}, {random_tensor(Dtype::f32, {T, W}, 10)}},
                            0, overwrite);
    }
    if (W > 1) expect_gradient_like_reference({"split" + size, "split", {a}, {{"first", W / 3 + 1}}, {}}, 0);
    const Operand runs = activation(random_tensor(X, {T, 3 * (W + 1)}, 11));
    expect_gradient_like_reference({"split of runs" + size, "split", {runs}, {{"first", W}, {"runs", 3}}, {}}, 0);
    expect_gradient_like_reference({"concat" + size, "concat", {a, b}, {{"first", W}, {"second", W}}, {}}, 0);
    expect_like_reference({"concat of one" + size, "concat", {absent(), b}, {{"first", 3}, {"second", W}}, {}}, 0);
  }
  expect_like_reference({"accumulate f64",
                         "accumulate",
                         {activation(Tensor(Dtype::f64, {1}, 2.5))},
                         {},
                         {Tensor(Dtype::f64, {1}, 0.25)}},
                        0, false);
}

TEST(HostStreamTypes, f64_and_mixed_operands_are_refused_with_a_reason) {
  ListingRunner runner(kernels::host_kernels());
  const ValueId x = runner.add(Tensor(Dtype::f64, {2, 4}, 1), Role::activation, "x");
  const ValueId g = runner.add(Tensor(Dtype::f64, {4}, 1), Role::weight, "g");
  const ValueId narrow = runner.add(Tensor(Dtype::bf16, {2, 4}, 1), Role::activation, "narrow");
  ir::Op op{.def = &ops::find("rms_norm"), .in = {x, g}, .attributes = {{"epsilon", 1e-3}}};
  std::vector<std::string> refusals;
  EXPECT_EQ(backends::named("host").select_kernel(runner.listing, op, &refusals).backend, "reference");
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_NE(refusals[0].find("input 0 is f64, wanted bf16 or f32"), std::string::npos) << refusals[0];
  op.in = {narrow, g};
  refusals.clear();
  EXPECT_EQ(backends::named("host").select_kernel(runner.listing, op, &refusals).backend, "reference");
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_NE(refusals[0].find("input 1 is f64, wanted f32"), std::string::npos) << refusals[0];
}

}  // namespace
}  // namespace heddle::op_runner
