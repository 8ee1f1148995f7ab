// Gated streams: reference against the definition, written again; host against reference.
#include "tests/kernels/gated_stream_cases.h"
#include "tests/kernels/host_stream.h"

namespace heddle::op_runner {
namespace {

double sigma(double x) { return 1 / (1 + std::exp(-x)); }

TEST(GatedStreams, reads_as_defined) {
  constexpr int64_t T = 3, n = 4, H = 5;
  const OpCase norm = norm_streams_case("norm", Dtype::f64, T, n, H, true);
  const OpCase read = read_gated_case("read", Dtype::f64, T, n, H, false);
  const auto run = [](const OpCase& op) { return run_op(op, kernels::reference_kernels()).out; };
  const auto normed = run(norm), made = run(read);
  const auto at = [](const OpCase& op, size_t operand, int64_t i) {
    return op.in[operand].tensor.values[static_cast<size_t>(i)];
  };
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < n; ++i) {
      double squares = 0;
      for (int64_t h = 0; h < H; ++h) squares += std::pow(at(norm, 0, (t * n + i) * H + h), 2);
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(H) + 1e-2);
      const double w = 2 * sigma(at(read, 2, t * n + i) / static_cast<double>(n));
      EXPECT_NEAR(made[1].values[static_cast<size_t>(t * n + i)], w, 1e-14);
      for (int64_t h = 0; h < H; ++h) {
        const auto each = static_cast<size_t>((t * n + i) * H + h);
        EXPECT_NEAR(normed[0].values[each], at(norm, 0, (t * n + i) * H + h) * rstd * (1 + at(norm, 1, i * H + h)),
                    1e-14);
      }
    }
    for (int64_t h = 0; h < H; ++h) {
      double mean = 0;
      for (int64_t i = 0; i < n; ++i)
        mean += sigma(at(read, 1, (t * n + i) * H + h)) * at(read, 0, (t * n + i) * H + h) / static_cast<double>(n);
      EXPECT_NEAR(made[0].values[static_cast<size_t>(t * H + h)], mean, 1e-14);
    }
  }
}

TEST(GatedStreams, gates_values_as_defined) {
  constexpr int64_t T = 4, n = 2, H = 5;
  OpCase op = gate_streams_case("gate", Dtype::f64, T, n, H);
  for (int64_t h = 0; h < H; ++h) {
    op.in[0].tensor.values[static_cast<size_t>(h)] = 0;          // no agreement
    op.in[0].tensor.values[static_cast<size_t>(H + h)] *= 1e-7;  // so little that it is cut
  }
  const Tensor s = run_op(op, kernels::reference_kernels()).out[0];
  for (int64_t r = 0; r < T * n; ++r) {
    double d = 0;
    for (int64_t h = 0; h < H; ++h)
      d += op.in[0].tensor.values[static_cast<size_t>(r * H + h)] *
           op.in[1].tensor.values[static_cast<size_t>(r * H + h)];
    d /= std::sqrt(static_cast<double>(H));
    const double sign = d > 0 ? 1 : d < 0 ? -1 : 0, gate = sigma(sign * std::sqrt(std::max(std::abs(d), 1e-6)));
    if (r == 0) {
      EXPECT_EQ(gate, 0.5);
    }
    for (int64_t h = 0; h < H; ++h)
      EXPECT_NEAR(s.values[static_cast<size_t>(r * H + h)],
                  gate * op.in[2].tensor.values[static_cast<size_t>(r / n * H + h)], 1e-14);
  }
  const GradientResult gradient = run_with_gradient(op, kernels::reference_kernels());
  for (int64_t h = 0; h < 2 * H; ++h) EXPECT_EQ(gradient.d_in[1].values[static_cast<size_t>(h)], 0) << "cut";
}

class HostGatedStreams : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, HostGatedStreams, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(HostGatedStreams, are_those_of_reference) {
  const Dtype X = GetParam();
  const double tolerance = X == Dtype::f32 ? 2e-5 : 0x1p-6;
  for (const CaseMaker& maker : gated_stream_cases()) {
    for (const int64_t B : {0, 2}) expect_gradient_like_reference(maker.make(X, B), tolerance);
  }
  // Blocks of partial sums, and rows of more than one thread.
  for (const auto& [T, n, H] : std::vector<std::array<int64_t, 3>>{{65, 4, 33}, {257, 4, 130}, {67, 3, 520}}) {
    const std::string of = fmt::format("{}x{}x{}", T, n, H);
    expect_gradient_like_reference(norm_streams_case("norm " + of, X, T, n, H, true), tolerance);
    expect_gradient_like_reference(read_gated_case("read " + of, X, T, n, H, false), tolerance);
    expect_gradient_like_reference(gate_streams_case("gate " + of, X, T, n, H), tolerance);
  }
}

}  // namespace
}  // namespace heddle::op_runner
