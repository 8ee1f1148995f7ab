// The linear ops on the host's matrix products against `reference`, from rows and from packed weights.
//
// Tolerance, of the largest magnitude: fp32 sums of at most 40 terms in another order, 4e-6. In bf16 both backends
// round nearly the same fp32 sum, hence to the same or to neighbouring bf16 numbers: 2⁻⁷.
#include <cmath>

#include "heddle/kernels/host/gemm/gemm.h"
#include "tests/kernels/op_cases.h"

namespace heddle::op_runner {
namespace {

double tolerance_host_linear(Dtype X) { return X == Dtype::bf16 ? 1.0 / 128 : 4e-6; }

class HostLinear : public testing::TestWithParam<CaseMaker> {};
INSTANTIATE_TEST_SUITE_P(Cases, HostLinear, testing::ValuesIn(linear_cases()),
                         [](const auto& info) { return info.param.name; });

bool is_linear(const OpCase& op) { return op.kind == "linear" || op.kind == "grouped_linear"; }

TEST_P(HostLinear, AgreesWithReference) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    for (const int64_t B : {0, 1, 9}) {
      const OpCase op = GetParam().make(X, B);
      if (!is_linear(op)) GTEST_SKIP() << op.kind << " is not a linear op";
      for (const int rounds : {1, 2}) {
        const GradientResult wanted = run_with_gradient(op, kernels::reference_kernels(), rounds);
        std::vector<kernels::KernelEntry> kernels = kernels::host_kernels();
        const GradientResult found = run_with_gradient(op, kernels, rounds);
        for (const std::string& ran : found.ran) {
          const bool grouped = op.kind == "grouped_linear";
          EXPECT_NE(ran.find(grouped ? "host.grouped" : "host.gemm"), std::string::npos) << ran;
        }
        ASSERT_EQ(wanted.out.size(), found.out.size());
        for (size_t i = 0; i < wanted.out.size(); ++i) {
          EXPECT_TRUE(close(wanted.out[i], found.out[i], tolerance_host_linear(X))) << name_of(X) << ", B " << B;
        }
        for (size_t i = 0; i < wanted.d_in.size(); ++i) {
          EXPECT_TRUE(close(wanted.d_in[i], found.d_in[i], tolerance_host_linear(X)))
              << name_of(X) << ", B " << B << ", d" << i;
        }
      }
    }
  }
}

TEST_P(HostLinear, PackedWeightsGiveTheSameBitsAsRows) {
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    OpCase op = GetParam().make(X, 5);
    if (!is_linear(op)) GTEST_SKIP() << op.kind << " is not a linear op";
    if (op.in[1].tensor.dtype != X || op.attributes.integer_or("wide", 0)) {
      GTEST_SKIP() << "a wide output's gradient is fp32, which a packed bf16 weight does not multiply";
    }
    if (kernels::host::packed_bytes(X, 1, 8, 8) == 0) GTEST_SKIP() << "this machine's engine reads rows";
    const GradientResult rows = run_with_gradient(op, kernels::host_kernels());
    Tensor& w = op.in[1].tensor;
    Tensor master = w;
    master.dtype = Dtype::f32;
    Tensor packed = w;
    packed.values.clear();
    packed.layout = ir::Layout::packed;
    const bool grouped = w.shape.size() == 3;
    packed.packed.resize(static_cast<size_t>(kernels::host::packed_bytes(
        X, grouped ? w.shape[0] : 1, w.shape[grouped ? 1 : 0], w.shape[grouped ? 2 : 1])));
    OpCase pack{"pack", "pack_weight", {{master, Role::optimizer}}, {}, {packed}};
    const OpResult result = run_op(pack, kernels::host_kernels(), true, ir::Phase::end);
    w = result.updates[0];
    const GradientResult found = run_with_gradient(op, kernels::host_kernels());
    EXPECT_TRUE(same(rows.out[0], found.out[0])) << name_of(X);
    EXPECT_TRUE(same(rows.d_in[0], found.d_in[0])) << name_of(X);
  }
}

TEST(HostPackWeight, TakesTheBf16RowsThatRanksGather) {
  std::vector<double> values;
  for (int i = 0; i < 2 * 37 * 41; ++i)
    values.push_back(static_cast<float>(bf16(std::sin(0.7f * static_cast<float>(i)))));
  for (const Dtype X : {Dtype::f32, Dtype::bf16}) {
    if (kernels::host::packed_bytes(X, 1, 8, 8) == 0) GTEST_SKIP() << "this machine's engine reads rows";
    Tensor packed(X, {2, 37, 41});
    packed.values.clear();
    packed.layout = ir::Layout::packed;
    packed.packed.resize(static_cast<size_t>(kernels::host::packed_bytes(X, 2, 37, 41)));
    std::vector<Tensor> found;
    for (const Dtype source : {Dtype::f32, Dtype::bf16}) {
      const Tensor rows(source, {2, 37, 41}, values);
      const OpCase pack{"pack", "pack_weight", {{rows, Role::optimizer}}, {}, {packed}};
      found.push_back(run_op(pack, kernels::host_kernels(), true, ir::Phase::end).updates[0]);
    }
    EXPECT_TRUE(found[0].packed == found[1].packed) << name_of(X);
    EXPECT_FALSE(found[0].packed == packed.packed) << name_of(X);
  }
}

TEST(HostLinearRefusal, NamesWhatItCannotDo) {
  EXPECT_THROW(run_op(linear_cases()[0].make(Dtype::f64, 1), kernels::host_kernels()), InternalError);
}

}  // namespace
}  // namespace heddle::op_runner
