// QK-clip's ops on the cuda backend against reference, on a device or in the emulator of blocks and warps.
#include "tests/gpu/on_device.h"
#include "tests/kernels/qk_clip_cases.h"

namespace heddle::op_runner {
namespace {

class CudaQkClip : public testing::Test {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
  static void like_reference(const OpCase& op, double tolerance, bool overwrite, ir::Phase phase) {
    const OpResult expected = run_op(op, kernels::reference_kernels(), overwrite, phase);
    const OpResult found = run_op(op, kernels::cuda_kernels(), overwrite, phase);
    EXPECT_NE(found.ran[0].find(": cuda."), std::string::npos) << found.ran[0];
    for (size_t i = 0; i < expected.updates.size(); ++i)
      EXPECT_TRUE(close(expected.updates[i], found.updates[i], tolerance)) << op.name << ", update " << i;
  }
};

TEST_F(CudaQkClip, MaxLogits) {
  for (const LogitCase& c : logit_cases()) {
    for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
      for (const bool first : {true, false}) like_reference(max_logits_case(c, X), 1e-5, first, ir::Phase::F);
    }
  }
}

// The same bits as on the host: factors are made in fp64, and each product is rounded once.
TEST_F(CudaQkClip, ScaleHeads) {
  for (const ScaleCase& c : scale_cases()) {
    const OpCase op = scale_heads_case(c, Dtype::f32);
    like_reference(op, 0, false, ir::Phase::end);
    for (const Dtype moments : {Dtype::f32, Dtype::bf16}) {
      OpCase halves = op;
      const int64_t count = op.updates[0].shape[0];
      halves.kind = "scale_heads_split";
      halves.updates = {Tensor(Dtype::u16, {count}), Tensor(moments, {count}, 0.25),
                        random_tensor(Dtype::bf16, {count}, 9)};
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        halves.updates[0].values[i] = i % 3 == 0 ? 0x8000 : static_cast<double>(i * 977 % 65536);
      for (size_t i = 0; i < static_cast<size_t>(count); i += 2) halves.updates[1].values[i] = -0.25;
      like_reference(halves, 0, false, ir::Phase::end);
    }
  }
}

}  // namespace
}  // namespace heddle::op_runner
