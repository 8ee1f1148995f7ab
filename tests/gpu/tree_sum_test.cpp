// A token's rows are summed in one tree (device/merge_tree.h), whether its leaves lie in registers or in memory:
// the reference's bits for every number of experts a token up to what a device sums, and for many shapes of the
// tree.
#include "tests/gpu/on_device.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

class TreeSums : public testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    if (const Support there = device_there(); !there) GTEST_SKIP() << there.reason;
  }
};

TEST_P(TreeSums, have_the_bits_of_reference) {
  const int64_t k = GetParam(), E = 3 * k + 5, H = 24;
  const int64_t T = k <= 9 ? 150 : 12;  // 150 draws of k of E experts: a tree of 8 leaves has 429 shapes
  const Routing routing = random_routing(T, k, E, 40 + static_cast<uint64_t>(k));
  for (const bool weighed : {false, true}) {
    OpCase op{weighed ? "unpermute" : "permute_dgrad",
              weighed ? "unpermute" : "permute_dgrad",
              {activation(random_tensor(Dtype::f32, {T * k, H}, 51))},
              {},
              {}};
    if (weighed) op.in.push_back(activation(random_tensor(Dtype::f32, {T, k}, 52)));
    op.in.push_back(metadata(routing.row_of));
    op.in.push_back(metadata(routing.experts));
    if (weighed) op.in.push_back(absent());
    const ir::Phase phase = weighed ? ir::Phase::F : ir::Phase::I;
    const OpResult expected = run_op(op, kernels::reference_kernels(), false, phase);
    const OpResult found = run_op(op, kernels::cuda_kernels(), false, phase);
    EXPECT_NE(found.ran[0].find(": cuda."), std::string::npos) << found.ran[0];
    EXPECT_TRUE(same(expected.out[0], found.out[0])) << op.name << ", " << k << " experts a token";
  }
}
INSTANTIATE_TEST_SUITE_P(Leaves, TreeSums, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64));

}  // namespace
}  // namespace heddle::op_runner
