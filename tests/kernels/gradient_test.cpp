// Every differentiable op on reference: gradients written by the op's own rule against central differences in f64,
// then the other compute types against f64, accumulation, and no rows at all.
#include "tests/kernels/compression_cases.h"
#include "tests/kernels/gated_stream_cases.h"
#include "tests/kernels/hyper_connection_cases.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/recurrence_cases.h"
#include "tests/kernels/selection_cases.h"

namespace heddle::op_runner {
namespace {

const std::vector<kernels::KernelEntry>& reference_gradient() { return kernels::reference_kernels(); }

/// What the gradients are of: Σ seed·output, or scales[scale_index]·loss for a loss, with z_weight·z where it has
/// that.
double objective(const OpCase& op, const std::vector<Tensor>& seeds) {
  const OpResult result = run_op(op, reference_gradient());
  if (ops::find(op.kind).is_loss) {
    const auto scales = static_cast<size_t>(ir::place_of("scales", ops::find(op.kind).operands));
    const double scale = op.in[scales].tensor.values[static_cast<size_t>(op.attributes.integer("scale_index"))];
    double loss = result.out[0].values[0];
    if (op.attributes.has("z_weight")) loss += op.attributes.number("z_weight") * result.out[2].values[0];
    // What ranks share, each counts a part of, and differentiates whole.
    return scale * loss * op.attributes.number_or("ranks", 1);
  }
  double sum = 0;
  for (size_t i = 0; i < seeds.size(); ++i) {
    for (size_t j = 0; j < seeds[i].values.size(); ++j) sum += seeds[i].values[j] * result.out[i].values[j];
  }
  return sum;
}

class Gradient : public ::testing::TestWithParam<CaseMaker> {};

TEST_P(Gradient, equals_central_differences) {
  OpCase op = GetParam().make(Dtype::f64, 2);
  const GradientResult result = run_with_gradient(op, reference_gradient());
  for (size_t i = 0; i < op.in.size(); ++i) {
    Tensor& x = op.in[i].tensor;
    if (!x.present || (op.in[i].role != Role::activation && op.in[i].role != Role::weight)) continue;
    const Tensor& gradient = result.d_in[i];
    ASSERT_TRUE(gradient.present) << "operand " << i << " has no gradient";
    ASSERT_EQ(gradient.shape, x.shape) << "operand " << i;
    double most = 1e-3;  // differences of a gradient that is all zeros are judged absolutely
    for (const double v : gradient.values) most = std::max(most, std::abs(v));
    const size_t stride = 1 + x.values.size() / 80;
    for (size_t j = 0; j < x.values.size(); j += stride) {
      const double kept = x.values[j], step = 1e-5 * std::max(1.0, std::abs(kept));
      x.values[j] = kept + step;
      const double above = objective(op, result.seeds);
      x.values[j] = kept - step;
      const double below = objective(op, result.seeds);
      x.values[j] = kept;
      EXPECT_NEAR((above - below) / (2 * step), gradient.values[j], 1e-6 * most)
          << "operand " << i << " element " << j;
    }
  }
}

TEST_P(Gradient, is_the_same_in_every_type) {
  // Per stored number bf16 rounds by 2⁻⁹ of it, and a gradient reads up to three rounded numbers.
  const std::pair<Dtype, double> types[] = {{Dtype::f32, 2e-5}, {Dtype::bf16, 2e-2}};
  const GradientResult expected = run_with_gradient(GetParam().make(Dtype::f64, 2), reference_gradient());
  for (const auto& [X, tolerance] : types) {
    const GradientResult found = run_with_gradient(GetParam().make(X, 2), reference_gradient());
    for (size_t i = 0; i < expected.out.size(); ++i) {
      EXPECT_TRUE(close(expected.out[i], found.out[i], tolerance)) << name_of(X) << " output " << i;
    }
    for (size_t i = 0; i < expected.d_in.size(); ++i) {
      EXPECT_TRUE(close(expected.d_in[i], found.d_in[i], tolerance)) << name_of(X) << " gradient of operand " << i;
    }
  }
}

TEST_P(Gradient, of_weights_adds_up) {
  for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    const OpCase op = GetParam().make(X, 1);
    const GradientResult once = run_with_gradient(op, reference_gradient(), 1),
                         twice = run_with_gradient(op, reference_gradient(), 2);
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (op.in[i].role != Role::weight) continue;
      ASSERT_TRUE(once.d_in[i].present);
      EXPECT_EQ(once.d_in[i].dtype, wide(X));
      Tensor doubled = once.d_in[i];
      for (double& v : doubled.values) v *= 2;
      // Two equal finished sums add exactly; the embedding adds row by row.
      EXPECT_TRUE(close(doubled, twice.d_in[i], op.kind == "embedding" ? 1e-6 : 0))
          << name_of(X) << " operand " << i;
    }
  }
}

TEST_P(Gradient, of_no_rows_is_zero) {
  for (const Dtype X : {Dtype::f64, Dtype::bf16}) {
    const OpCase op = GetParam().make(X, 0);
    const GradientResult result = run_with_gradient(op, reference_gradient());
    for (size_t i = 0; i < op.in.size(); ++i) {
      if (op.in[i].role != Role::weight || !op.in[i].tensor.present) continue;
      ASSERT_TRUE(result.d_in[i].present);
      for (const double v : result.d_in[i].values) ASSERT_EQ(v, 0) << "operand " << i;
    }
    if (ops::find(op.kind).is_loss) {
      EXPECT_EQ(result.out[0].values[0], 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, Gradient, ::testing::ValuesIn(differentiable_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Recurrence, Gradient, ::testing::ValuesIn(recurrence_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(HyperConnection, Gradient, ::testing::ValuesIn(hyper_connection_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(GatedStreams, Gradient, ::testing::ValuesIn(gated_stream_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Selection, Gradient, ::testing::ValuesIn(selection_cases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Compression, Gradient, ::testing::ValuesIn(compression_cases()),
                         [](const auto& info) { return info.param.name; });

// An output that nothing reads has no gradient, and its rule gets none for it: the rest must be as if it were zero.
TEST(AbsentGradient, counts_as_zero) {
  for (const std::string name : {"split", "add_rms_norm", "router_sigmoid_normalize1"}) {
    for (const CaseMaker& maker : differentiable_cases()) {
      if (maker.name != name) continue;
      for (const size_t kept : {0, 1}) {
        const OpCase op = maker.make(Dtype::f64, 2);
        const GradientResult alone =
            run_with_gradient(op, reference_gradient(), 1, 99, [&](size_t i) { return i == kept; });
        const GradientResult both = run_with_gradient(op, reference_gradient());
        const GradientResult other =
            run_with_gradient(op, reference_gradient(), 1, 99, [&](size_t i) { return i != kept; });
        for (size_t i = 0; i < op.in.size(); ++i) {
          if (!both.d_in[i].present) continue;
          Tensor sum = both.d_in[i];
          for (size_t j = 0; j < sum.values.size(); ++j) {
            sum.values[j] = (alone.d_in[i].present ? alone.d_in[i].values[j] : 0) +
                            (other.d_in[i].present ? other.d_in[i].values[j] : 0);
          }
          EXPECT_TRUE(close(both.d_in[i], sum, 1e-12)) << name << " operand " << i;
        }
      }
    }
  }
}

TEST(GradientCases, cover_every_differentiable_op) {
  std::vector<std::string> covered;
  for (const auto& cases : {differentiable_cases(), hyper_connection_cases(), gated_stream_cases(),
                            recurrence_cases(), selection_cases(), compression_cases()}) {
    for (const CaseMaker& maker : cases) covered.push_back(maker.make(Dtype::f64, 1).kind);
  }
  for (const ir::OpDef* def : ops::all()) {
    if (def->differentiate == nullptr || def->collective || def->stream == ir::StreamKind::comm) continue;
    if (def->kind == "sharded_loss" || def->kind == "sharded_token_losses")
      continue;  // a loss only with the parts of other ranks: the layout tests hold it
    if (def->kind == "attention_finish")
      continue;                                   // its rule is that of the parts: context_attention_test holds it
    if (def->kind == "apply_capacity") continue;  // it drops by order, which no difference sees: capacity_test
    EXPECT_NE(std::find(covered.begin(), covered.end(), def->kind), covered.end()) << def->kind << " has no case";
  }
}

}  // namespace
}  // namespace heddle::op_runner
