// Every op on the kernels of the cuda backend against reference: the cases that gradients are checked on, in both
// types, with no rows at all, alone and accumulating. Run on a device (gpu_test) and in the emulator of blocks and
// warps (emulated_test), where the same sources of the kernels run on the CPU.
#include <set>

#include "heddle/kernels/cuda/attention/attention.h"
#include "tests/gpu/on_device.h"
#include "tests/kernels/compression_cases.h"
#include "tests/kernels/gated_stream_cases.h"
#include "tests/kernels/hyper_connection_cases.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/recurrence_cases.h"
#include "tests/kernels/selection_cases.h"

namespace heddle::op_runner {
namespace {

/// bf16 results are rounded once, of sums in another order, and where an inner product is rounded too (attention's
/// scores, the gradient of logits) of operands off by 2^-9. f32 sums differ in order only.
double tolerance(const std::string& kind, Dtype X) {
  if (X == Dtype::f32) return 2e-5;
  return kind.find("attention") != std::string::npos || kind.find("cross_entropy") != std::string::npos ? 0x1p-6
                                                                                                        : 0x1p-7;
}

std::set<std::string>& kinds_run() {
  static std::set<std::string> kinds;
  return kinds;
}

void note(const std::vector<std::string>& ran) {
  for (const std::string& name : ran) {
    EXPECT_NE(name.find(": cuda."), std::string::npos) << name;
    kinds_run().insert(name.substr(0, name.find(':')));
  }
}

/// Terms of order one that cancel leave zero in one order of sums, and a rounding in another.
constexpr double kCancelled = 1e-5;

void compare(const Tensor& expected, const Tensor& found, double tolerance, const std::string& where) {
  EXPECT_TRUE(close(expected, found, is_floating(expected.dtype) ? tolerance : 0, kCancelled)) << where;
}

void expect_gradient_like_reference(const OpCase& op, Dtype X) {
  for (const int rounds : {1, 2}) {
    const GradientResult expected = run_with_gradient(op, kernels::reference_kernels(), rounds);
    const GradientResult found = run_with_gradient(op, kernels::cuda_kernels(), rounds);
    const GradientResult again = run_with_gradient(op, kernels::cuda_kernels(), rounds);
    note(found.ran);
    const std::string where = fmt::format("{} in {}, {} rounds", op.name, name_of(X), rounds);
    for (size_t i = 0; i < expected.out.size(); ++i) {
      compare(expected.out[i], found.out[i], tolerance(op.kind, X), fmt::format("{}, output {}", where, i));
      EXPECT_TRUE(same(found.out[i], again.out[i])) << where << ", output " << i << ", run again";
    }
    for (size_t i = 0; i < expected.d_in.size(); ++i) {
      compare(expected.d_in[i], found.d_in[i], tolerance(op.kind, X), fmt::format("{}, gradient {}", where, i));
      EXPECT_TRUE(same(found.d_in[i], again.d_in[i])) << where << ", gradient " << i << ", run again";
    }
  }
}

class Ops : public testing::TestWithParam<CaseMaker> {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Ops, testing::ValuesIn(differentiable_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Recurrence, Ops, testing::ValuesIn(recurrence_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(HyperConnection, Ops, testing::ValuesIn(hyper_connection_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(GatedStreams, Ops, testing::ValuesIn(gated_stream_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Compression, Ops, testing::ValuesIn(compression_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Selection, Ops, testing::ValuesIn(selection_cases()),
                         [](const auto& info) { return info.param.name; });

/// Rows of experts in whole tiles and beyond, as wide as Hopper's kernel wants them.
class Products : public Ops {};
INSTANTIATE_TEST_SUITE_P(Tiles, Products,
                         testing::Values(CaseMaker{"grouped_linear_tiles", [](Dtype X, int64_t B) {
                                                     const Routing routing = random_routing(B * 150, 2, 5, 5, {3});
                                                     return OpCase{"grouped_linear_tiles",
                                                                   "grouped_linear",
                                                                   {activation(random_tensor(X, {B * 300, 128}, 6)),
                                                                    weight(random_tensor(X, {5, 192, 128}, 7)),
                                                                    metadata(routing.offsets)},
                                                                   {},
                                                                   {}};
                                                   }}));
TEST_P(Products, bf16) { expect_gradient_like_reference(GetParam().make(Dtype::bf16, 1), Dtype::bf16); }

/// Heads of several slices: queries and keys of two tiles, behind all kinds of masks.
class WideHeads : public testing::TestWithParam<std::tuple<int64_t, int64_t, Dtype>> {};
INSTANTIATE_TEST_SUITE_P(Widths, WideHeads,
                         testing::Values(std::tuple{256, 256, Dtype::bf16}, std::tuple{200, 40, Dtype::bf16},
                                         std::tuple{72, 144, Dtype::bf16}, std::tuple{512, 500, Dtype::bf16},
                                         std::tuple{130, 250, Dtype::f32}));
TEST_P(WideHeads, like_reference) {
  if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  constexpr int64_t kRows = 70;
  const auto& [d, v, X] = GetParam();
  expect_gradient_like_reference(
      {"wide heads",
       "attention",
       {activation(random_tensor(X, {kRows, 2 * d}, 27)), activation(random_tensor(X, {kRows, d}, 28)),
        activation(random_tensor(X, {kRows, v}, 29)), Operand{document_starts(1, kRows), Role::input},
        weight(random_tensor(Dtype::f32, {2}, 30))},
       {{"heads", 2},
        {"kv_heads", 1},
        {"head_dim", d},
        {"value_dim", v},
        {"sequence", kRows},
        {"causal", 1},
        {"scale", 1 / std::sqrt(static_cast<double>(d))},
        {"window", int64_t{40}},
        {"cap", 2.0}},
       {}},
      X);
}
TEST(WideHeadsInF32, are_refused_beyond_256) {
  EXPECT_TRUE(kernels::cuda::attention_fits_block(256, 256, Dtype::f32, device::Vendor::nvidia));
  EXPECT_TRUE(kernels::cuda::attention_fits_block(512, 512, Dtype::bf16, device::Vendor::nvidia));
  EXPECT_FALSE(kernels::cuda::attention_fits_block(512, 512, Dtype::f32, device::Vendor::nvidia));
}

TEST_P(Ops, bf16) {
  for (const int64_t B : {2, 0}) expect_gradient_like_reference(GetParam().make(Dtype::bf16, B), Dtype::bf16);
}
TEST_P(Ops, f32) {
  for (const int64_t B : {2, 0}) expect_gradient_like_reference(GetParam().make(Dtype::f32, B), Dtype::f32);
}

/// Three pieces of bf16 are an f32: what the tensor cores make of them is as near as sums of f32 in another order.
TEST(RouterProducts, have_the_precision_of_f32) {
  if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  const OpCase op{"router",
                  "linear",
                  {activation(random_tensor(Dtype::bf16, {150, 100}, 1)),
                   weight(random_tensor(Dtype::f32, {70, 100}, 2)), absent()},
                  {{"wide", int64_t{1}}},
                  {}};
  for (const int rounds : {1, 2}) {
    const GradientResult expected = run_with_gradient(op, kernels::reference_kernels(), rounds);
    const GradientResult found = run_with_gradient(op, kernels::cuda_kernels(), rounds);
    int64_t pieces = 0;
    for (const std::string& ran : found.ran) pieces += ran.find("cuda.pieces") != std::string::npos ? 1 : 0;
    EXPECT_EQ(pieces, std::ssize(found.ran)) << found.ran[0];
    EXPECT_TRUE(close(expected.out[0], found.out[0], 1e-6));
    EXPECT_TRUE(close(expected.d_in[0], found.d_in[0], 0x1p-8)) << "rounded to bf16";
    EXPECT_TRUE(close(expected.d_in[1], found.d_in[1], 1e-6));
  }
}

}  // namespace
}  // namespace heddle::op_runner
