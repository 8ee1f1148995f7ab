// The end of a step on the host against `reference`: fp32 in another order of multiplication, 1e-6 of the largest
// magnitude; a rounded copy may fall on the neighbouring bf16.
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

Tensor positive(Tensor t) {
  for (double& x : t.values) x = std::abs(x);
  return t;
}

OpCase adamw_case(int64_t elements, int uses, bool copy) {
  OpCase op{"", "adamw", {}, {}, {}};
  op.in.push_back(metadata(Tensor(Dtype::f64, {1}, 0.7)));
  Tensor hyper(Dtype::f64, {3}, 0);
  hyper.values = {3e-3, 0.19, 0.0975};
  op.in.push_back(metadata(hyper));
  for (int u = 0; u < uses; ++u)
    op.in.push_back(metadata(random_tensor(Dtype::f32, {elements}, 10 + static_cast<uint64_t>(u))));
  op.attributes = {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"decay", 0.1}, {"copy", int64_t{copy}}};
  op.updates = {random_tensor(Dtype::f32, {elements}, 1), random_tensor(Dtype::f32, {elements}, 2),
                positive(random_tensor(Dtype::f32, {elements}, 3))};
  if (copy) op.updates.push_back(Tensor(Dtype::bf16, {elements}, 0));
  return op;
}

TEST(HostAdamw, AgreesWithReference) {
  for (const int64_t elements : {1, 7, 33, 5000}) {
    for (const int uses : {1, 3}) {
      for (const bool copy : {false, true}) {
        const OpCase op = adamw_case(elements, uses, copy);
        const OpResult wanted = run_op(op, kernels::reference_kernels(), false, ir::Phase::end);
        const OpResult found = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
        for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(close(wanted.updates[i], found.updates[i], 1e-6)) << i;
        if (copy) EXPECT_TRUE(close(wanted.updates[3], found.updates[3], 1.0 / 256));
      }
    }
  }
}

TEST(HostAdamw, TouchesNothingWhenTheNormIsNotFinite) {
  OpCase op = adamw_case(100, 1, true);
  op.in[0].tensor.values = {0.0};
  const OpResult found = run_op(op, kernels::host_kernels(), false, ir::Phase::end);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(same(op.updates[i], found.updates[i]));
}

TEST(HostGradSquareSum, AgreesWithReference) {
  for (const int64_t elements : {1, 5, 1024, 100003}) {
    OpCase op{"", "grad_square_sum", {}, {}, {}};
    for (uint64_t u = 0; u < 2; ++u) op.in.push_back(metadata(random_tensor(Dtype::f32, {elements}, u)));
    EXPECT_TRUE(close(run_op(op, kernels::reference_kernels(), false, ir::Phase::end).out[0],
                      run_op(op, kernels::host_kernels(), false, ir::Phase::end).out[0], 1e-13));
  }
}

TEST(HostCastWeight, RoundsToTheSameBits) {
  OpCase op{
      "", "cast_weight", {metadata(random_tensor(Dtype::f32, {777}, 4))}, {}, {Tensor(Dtype::bf16, {777}, 0)}};
  EXPECT_TRUE(same(run_op(op, kernels::reference_kernels(), false, ir::Phase::end).updates[0],
                   run_op(op, kernels::host_kernels(), false, ir::Phase::end).updates[0]));
}

}  // namespace
}  // namespace heddle::op_runner
