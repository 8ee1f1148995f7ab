// The residual's streams: reference against the definition, written again; host against reference.
#include "tests/kernels/host_stream.h"
#include "tests/kernels/hyper_connection_cases.h"

namespace heddle::op_runner {
namespace {

using Matrix = std::vector<std::vector<double>>;

double logistic(double z) { return 1 / (1 + std::exp(-z)); }

// Divides each row by its sum.
void divide_rows(Matrix& m, double epsilon) {
  for (auto& row : m) {
    const double sum = std::accumulate(row.begin(), row.end(), epsilon);
    for (double& x : row) x /= sum;
  }
}

Matrix transposed(const Matrix& m) {
  Matrix t(m[0].size(), std::vector<double>(m.size()));
  for (size_t i = 0; i < m.size(); ++i) {
    for (size_t j = 0; j < m[i].size(); ++j) t[j][i] = m[i][j];
  }
  return t;
}

TEST(HyperConnection, reads_and_writes_as_defined) {
  for (const auto& [n, iterations] : {std::pair<size_t, int>{2, 1}, {3, 2}, {4, 20}}) {
    constexpr size_t T = 3, H = 5;
    OpCase read = read_streams_case("read", Dtype::f64, T, static_cast<int64_t>(n), H, iterations, false);
    const std::vector<Tensor> made = run_op(read, kernels::reference_kernels()).out;
    const auto &x = read.in[0].tensor.values, &q = read.in[1].tensor.values, &base = read.in[2].tensor.values,
               &scale = read.in[3].tensor.values;
    const double e = 1e-3;
    const size_t W = n * (2 + n);
    for (size_t t = 0; t < T; ++t) {
      double squares = 0;
      for (size_t h = 0; h < n * H; ++h) squares += x[t * n * H + h] * x[t * n * H + h];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(n * H) + 0.25);
      const auto z = [&](size_t i, size_t which) { return q[t * W + i] * rstd * scale[which] + base[i]; };
      std::vector<double> pre(n);
      for (size_t i = 0; i < n; ++i) {
        pre[i] = logistic(z(i, 0)) + e;
        EXPECT_NEAR(made[1].values[t * W + i], pre[i], 1e-13);
        EXPECT_NEAR(made[1].values[t * W + n + i], 2 * logistic(z(n + i, 1)), 1e-13);
      }
      Matrix comb(n, std::vector<double>(n));
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) comb[i][j] = std::exp(z(2 * n + i * n + j, 2));
      }
      divide_rows(comb, 0);
      for (auto& row : comb) {
        for (double& c : row) c += e;
      }
      for (int step = 0; step < iterations; ++step) {
        if (step > 0) divide_rows(comb, e);
        comb = transposed(comb);
        divide_rows(comb, e);
        comb = transposed(comb);
      }
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) EXPECT_NEAR(made[1].values[t * W + 2 * n + i * n + j], comb[i][j], 1e-13);
        if (iterations == 20) {
          EXPECT_NEAR(std::accumulate(comb[i].begin(), comb[i].end(), 0.0), 1, 0.01) << "rows sum to one";
        }
      }
      for (size_t h = 0; h < H; ++h) {
        double y = 0;
        for (size_t i = 0; i < n; ++i) y += pre[i] * x[(t * n + i) * H + h];
        EXPECT_NEAR(made[0].values[t * H + h], y, 1e-13);
      }
    }
    // Stream k takes its part of the block's output, and of stream j what row j of the matrix gives it.
    OpCase write = write_streams_case("write", Dtype::f64, T, static_cast<int64_t>(n), H);
    write.in[2].tensor = made[1];
    const Tensor s = run_op(write, kernels::reference_kernels()).out[0];
    for (size_t at = 0; at < T * n * H; ++at) {
      const size_t t = at / (n * H), k = at / H % n, h = at % H;
      double sum = made[1].values[t * W + n + k] * write.in[1].tensor.values[t * H + h];
      for (size_t j = 0; j < n; ++j)
        sum += made[1].values[t * W + 2 * n + j * n + k] * write.in[0].tensor.values[(t * n + j) * H + h];
      EXPECT_NEAR(s.values[at], sum, 1e-13);
    }
  }
}

TEST(HyperConnection, IndependentStreamsAreOnlyAddedTo) {
  constexpr size_t T = 3, n = 4, H = 5, W = 2 * n;
  const OpCase read = read_apart_case("read", Dtype::f64, T, n, H);
  const std::vector<Tensor> made = run_op(read, kernels::reference_kernels()).out;
  OpCase write = write_streams_case("write", Dtype::f64, T, n, H, W);
  write.in[2].tensor = made[1];
  const Tensor s = run_op(write, kernels::reference_kernels()).out[0];
  const auto at = [](const Operand& operand, size_t i) { return operand.tensor.values[i]; };
  for (size_t t = 0; t < T; ++t) {
    double squares = 0;
    for (size_t h = 0; h < n * H; ++h) squares += at(read.in[0], t * n * H + h) * at(read.in[0], t * n * H + h);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(n * H) + 0.25);
    for (size_t i = 0; i < W; ++i) {
      const double z = at(read.in[1], t * W + i) * rstd * at(read.in[3], i / n) + at(read.in[2], i);
      EXPECT_NEAR(made[1].values[t * W + i], (i < n ? 1 : 1.75) * logistic(z) + 1e-3, 1e-13);
    }
    for (size_t h = 0; h < H; ++h) {
      double y = 0;
      for (size_t i = 0; i < n; ++i) y += made[1].values[t * W + i] * at(read.in[0], (t * n + i) * H + h);
      EXPECT_NEAR(made[0].values[t * H + h], y, 1e-13);
      for (size_t k = 0; k < n; ++k) {
        EXPECT_NEAR(
            s.values[(t * n + k) * H + h],
            at(write.in[0], (t * n + k) * H + h) + made[1].values[t * W + n + k] * at(write.in[1], t * H + h),
            1e-13);
      }
    }
  }
}

class HostStreams : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, HostStreams, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(HostStreams, are_those_of_reference) {
  const Dtype X = GetParam();
  for (const CaseMaker& maker : hyper_connection_cases()) {
    for (const int64_t B : {0, 2}) expect_gradient_like_reference(maker.make(X, B), stream_tolerance(X));
  }
  // Blocks of partial sums, and rows of more than one thread.
  for (const auto& [T, n, H] : std::vector<std::array<int64_t, 3>>{{65, 4, 33}, {257, 4, 130}, {67, 3, 520}}) {
    expect_gradient_like_reference(read_streams_case(fmt::format("read {}x{}x{}", T, n, H), X, T, n, H, 20, false),
                                   stream_tolerance(X));
    expect_gradient_like_reference(write_streams_case(fmt::format("write {}x{}x{}", T, n, H), X, T, n, H),
                                   stream_tolerance(X));
    expect_gradient_like_reference(read_apart_case(fmt::format("read apart {}x{}x{}", T, n, H), X, T, n, H),
                                   10 * stream_tolerance(X));  // scales of two parts cancel more than of three
    expect_gradient_like_reference(write_streams_case(fmt::format("add {}x{}x{}", T, n, H), X, T, n, H, 2 * n),
                                   stream_tolerance(X));
  }
}

}  // namespace
}  // namespace heddle::op_runner
