// Products of operands in eight bits on the cuda backend: bytes and scales with reference's bits, sums in another
// order.
#include "tests/gpu/on_device.h"
#include "tests/kernels/fp8_cases.h"

namespace heddle::op_runner {
namespace {

class CudaFp8 : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
  static OpResult on_device(const OpCase& op, bool overwrite) {
    OpResult found = run_op(op, kernels::cuda_kernels(), overwrite, ir::Phase::W);
    EXPECT_NE(found.ran[0].find(": cuda."), std::string::npos) << found.ran[0];
    return found;
  }
};

TEST_F(CudaFp8, rows_have_the_same_bytes) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const auto& [T, K] : {std::pair{3, 300}, {130, 128}, {1, 1}, {0, 5}}) {
      for (const double other : {0.0, 1e-36, 3e38, static_cast<double>(INFINITY), std::nan("")}) {
        OpCase op = round_rows_case(X, T, K);
        if (T > 0) op.in[0].tensor.values.back() = other;
        const OpResult expected = run_op(op, kernels::reference_kernels()), found = on_device(op, false);
        for (size_t i = 0; i < expected.out.size(); ++i)
          EXPECT_TRUE(same(expected.out[i], found.out[i])) << op.name;
      }
    }
  }
}

TEST_F(CudaFp8, weights_have_the_same_bytes) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 136, 300}, {136, 300}, {1, 1}}) {
      for (const bool turned : {true, false}) {
        const OpCase op = round_weight_case(X, shape, 2, turned);
        const OpResult expected = run_op(op, kernels::reference_kernels()), found = on_device(op, false);
        for (size_t i = 0; i < expected.updates.size(); ++i)
          EXPECT_TRUE(same(expected.updates[i], found.updates[i])) << op.name << ", update " << i;
      }
    }
  }
}

// A weight that is rounded ahead, in either form, gives the bits of one that the product rounds.
TEST_F(CudaFp8, products_of_rounded_weights_have_the_same_bits) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const Fp8Sizes& sizes : {Fp8Sizes{{150}, 200, 304}, {{0, 140, 0, 7, 129}, 136, 144}}) {
      const std::vector<OpCase> ops = fp8_products(X, sizes);
      for (size_t i = 0; i < 2; ++i) {
        const OpResult wanted = on_device(ops[i], false);
        const OpCase op = with_rounded_weight(ops[i], i == 1), plain = with_rounded_weight(ops[i], false);
        EXPECT_TRUE(same(wanted.out[0], on_device(op, false).out[0])) << op.name;
        // A gradient's weight that is not turned goes to another kernel on Hopper.
        EXPECT_TRUE(close(wanted.out[0], on_device(plain, false).out[0], 0x1p-7)) << plain.name;
      }
    }
  }
}

TEST_F(CudaFp8, products_as_reference) {
  for (const Dtype X : {Dtype::bf16, Dtype::f32}) {
    for (const OpCase& op : fp8_cases(X)) {
      for (const bool overwrite : {true, false}) {
        const OpResult expected = run_op(op, kernels::reference_kernels(), overwrite, ir::Phase::W);
        const OpResult found = on_device(op, overwrite);
        // Hopper's tensor cores keep sums of eight-bit products to some 14 bits (DeepSeek-V3, arXiv
        // 2412.19437, 3.3.2).
        const double tolerance = X == Dtype::bf16 ? 0x1p-7 : 0x1p-10;
        for (size_t i = 0; i < expected.out.size(); ++i)
          EXPECT_TRUE(close(expected.out[i], found.out[i], tolerance)) << op.name << ", output " << i;
        for (size_t i = 0; i < expected.updates.size(); ++i)
          EXPECT_TRUE(close(expected.updates[i], found.updates[i], tolerance)) << op.name << ", update " << i;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
