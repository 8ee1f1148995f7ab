// Experts' capacity and balance by quantiles on the cuda backend: choices and counts with reference's bits, rows
// with gaps as reference has them.
#include "tests/gpu/on_device.h"
#include "tests/kernels/capacity_cases.h"

namespace heddle::op_runner {
namespace {

class CudaCapacity : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
  static OpResult on_device(const OpCase& op, bool overwrite, ir::Phase phase) {
    OpResult found = run_op(op, kernels::cuda_kernels(), overwrite, phase);
    EXPECT_NE(found.ran[0].find(": cuda."), std::string::npos) << found.ran[0];
    return found;
  }
  static void expect_same(const OpCase& op, bool overwrite = false, ir::Phase phase = ir::Phase::F) {
    const OpResult expected = run_op(op, kernels::reference_kernels(), overwrite, phase);
    const OpResult found = on_device(op, overwrite, phase);
    for (size_t i = 0; i < expected.out.size(); ++i)
      EXPECT_TRUE(same(expected.out[i], found.out[i])) << op.name << ", output " << i;
    for (size_t i = 0; i < expected.updates.size(); ++i)
      EXPECT_TRUE(same(expected.updates[i], found.updates[i])) << op.name << ", update " << i;
  }
};

TEST_F(CudaCapacity, choices_and_counts_have_the_same_bits) {
  for (const OpCase& op : exact_capacity_cases()) {
    for (const bool overwrite : {false, true}) expect_same(op, overwrite);
  }
}

TEST_F(CudaCapacity, biases_move_by_the_same_bits) {
  for (const int64_t E : {2, 37, 300}) expect_same(quantile_case(E, E / 2), false, ir::Phase::end);
}

TEST_F(CudaCapacity, rows_without_tokens_are_zeros) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const int64_t places : {1, 20, 35, 70}) {  // 35: as many places as choices
      for (const OpCase& op : rows_with_gaps(X, 70, 3, 6, 37, places)) {
        const OpResult expected = run_op(op, kernels::reference_kernels()),
                       found = on_device(op, false, ir::Phase::F);
        for (size_t i = 0; i < expected.out.size(); ++i)
          EXPECT_TRUE(close(expected.out[i], found.out[i], X == Dtype::f32 ? 2e-5 : 0x1p-7))
              << op.name << " in " << name_of(X) << ", " << places << " places, output " << i;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
