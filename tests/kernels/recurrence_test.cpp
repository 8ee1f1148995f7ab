// Recurrences: the reference against their quadratic form, rows that come piece by piece against whole sequences,
// and the host's kernels against the reference over odd sizes, documents, no rows at all and several thread counts.
#include "heddle/kernels/recurrence.h"

#include "tests/kernels/host_stream.h"
#include "tests/kernels/recurrence_cases.h"

namespace heddle::op_runner {
namespace {

/// Numbers of the operand at `at`, or of a single one where it is absent.
double number(const OpCase& op, size_t at, int64_t i, double otherwise) {
  if (at >= op.in.size() || !op.in[at].tensor.present) return otherwise;
  return op.in[at].tensor.values[static_cast<size_t>(i)];
}

/// recur without a state: u_i = v_i − Σ_{j<i} (k_i·k_j)·β_j·u_j, o_i = Σ_{j≤i} (q_i·k_j)·β_j·u_j, of a row's own
/// document, where products of channels decay by exp(Σ_{j<s≤i} g_s).
std::vector<double> quadratic_form(const Recurrence& r, const OpCase& op, int64_t B) {
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<double> o(at(B * r.S * r.h * r.dv));
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t j = 0; j < r.h; ++j) {
      const auto key = [&](size_t operand, int64_t i, int64_t c) {
        const auto& values = op.in[operand].tensor.values;
        const auto first = at(((b * r.S + i) * r.hk + j / (r.h / r.hk)) * r.dk);
        double squares = 0;
        for (size_t e = 0; e < at(r.dk); ++e) squares += values[first + e] * values[first + e];
        return values[first + at(c)] * (r.normed ? 1 / std::sqrt(squares + 1e-3) : 1);
      };
      const auto decay = [&](int64_t i, int64_t c) {
        const int64_t row = (b * r.S + i) * r.h + j;
        if (r.decays == Decays::slopes) return -0.7 * kernels::slope_of(j, r.h);
        return number(op, 3, r.decays == Decays::of_channels ? row * r.dk + c : row, 0);
      };
      const auto product = [&](size_t operand, int64_t i, int64_t k) {
        double sum = 0;
        for (int64_t c = 0; c < r.dk; ++c) {
          double power = 0;
          for (int64_t s = k + 1; s <= i; ++s) power += decay(s, c);
          sum += key(operand, i, c) * key(1, k, c) * std::exp(power);
        }
        return sum;
      };
      std::vector<double> w(at(r.S * r.dv));
      for (int64_t i = 0; i < r.S; ++i) {
        const auto start = static_cast<int64_t>(number(op, 6, b * r.S + i, 0));
        double beta = number(op, 4, (b * r.S + i) * r.h + j, 1);
        if (r.betas >= Betas::sigmoid) beta = (r.betas == Betas::sigmoid ? 1 : 2) / (1 + std::exp(-beta));
        for (int64_t e = 0; e < r.dv; ++e) {
          const int64_t row = ((b * r.S + i) * r.h + j) * r.dv + e;
          const double v = op.in[2].tensor.values[at(row)];
          double u = v;
          for (int64_t k = start; k < i && r.delta; ++k) u -= product(1, i, k) * w[at(k * r.dv + e)];
          w[at(i * r.dv + e)] = beta * u;
          double sum = 0;
          for (int64_t k = start; k <= i; ++k) sum += product(0, i, k) * w[at(k * r.dv + e)];
          o[at(row)] = 0.4 * sum + number(op, 5, j, 0) * v;
        }
      }
    }
  }
  return o;
}

TEST(Recurrence, is_its_quadratic_form) {
  for (const Recurrence& r : std::vector<Recurrence>{
           {"gated delta", 19, 4, 2, 5, 3, true, Decays::of_heads, Betas::sigmoid, true, true},
           {"twice beta", 19, 2, 2, 5, 3, true, Decays::of_heads, Betas::twice_sigmoid, true, true},
           {"delta of channels", 17, 2, 2, 4, 3, true, Decays::of_channels, Betas::narrow, false, true},
           {"state space", 21, 6, 2, 3, 4, false, Decays::of_heads, Betas::wide, false, true, true},
           {"slopes", 11, 3, 3, 3, 2, false, Decays::slopes, Betas::none}}) {
    const OpCase op = recurrence_case(r, Dtype::f64, 2);
    const OpResult found = run_op(op, kernels::reference_kernels());
    const Tensor expected(Dtype::f64, found.out[0].shape, quadratic_form(r, op, 2));
    EXPECT_TRUE(close(expected, found.out[0], 1e-12)) << r.name;
  }
}

TEST(Recurrence, has_the_slopes_of_alibi) {
  EXPECT_EQ(kernels::slope_of(0, 8), 0.5);
  EXPECT_EQ(kernels::slope_of(7, 8), std::exp2(-8));
  EXPECT_EQ(kernels::slope_of(8, 12), std::exp2(-0.5));  // those of 8, then every other one of 16
  EXPECT_EQ(kernels::slope_of(11, 12), std::exp2(-3.5));
}

/// Rows [first, end) of a tensor of whole sequences of S rows, of every sequence.
Tensor piece(const Tensor& whole, int64_t S, int64_t first, int64_t end) {
  const int64_t B = whole.shape[0] / S, width = whole.shape[1];
  Tensor some(whole.dtype, {B * (end - first), width});
  for (int64_t b = 0; b < B; ++b) {
    std::copy(whole.values.begin() + (b * S + first) * width, whole.values.begin() + (b * S + end) * width,
              some.values.begin() + b * (end - first) * width);
  }
  return some;
}

/// Rows of sequences piece by piece, each followed by a row that stands nowhere, give what whole sequences give.
void expect_pieces_like_whole(const OpCase& whole, const std::string& kind, Tensor kept, int64_t S,
                              const std::vector<kernels::KernelEntry>& kernels, double tolerance) {
  const Tensor expected = run_op(whole, kernels::reference_kernels()).out[0];
  for (double& v : kept.values) v = 7;  // of another sequence before: the first row begins anew
  for (const auto& [first, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 4}, {4, S}}) {
    OpCase op = whole;
    op.kind = kind;
    Tensor places(Dtype::i32, {0});
    for (int64_t b = 0; b < whole.in[0].tensor.shape[0] / S; ++b) {
      for (int64_t i = first; i < end; ++i) places.values.push_back(static_cast<double>(b * S + i));
    }
    places.values.push_back(-1);
    places.shape = {std::ssize(places.values)};
    op.in.back() = {places, Role::input};
    for (Operand& operand : op.in) {
      if (operand.role != Role::activation || !operand.tensor.present) continue;
      operand.tensor = piece(operand.tensor, S, first, end);
      operand.tensor.shape[0] += 1;
      operand.tensor.values.resize(static_cast<size_t>(operand.tensor.elements()), 3);
    }
    op.updates = {kept};
    const OpResult found = run_op(op, kernels);
    kept = found.updates[0];
    Tensor rows = found.out[0];
    const int64_t width = rows.shape[1];
    for (int64_t c = 0; c < width; ++c) EXPECT_EQ(rows.values[rows.values.size() - 1 - static_cast<size_t>(c)], 0);
    rows.shape[0] -= 1;
    rows.values.resize(static_cast<size_t>(rows.elements()));
    EXPECT_TRUE(close(piece(expected, S, first, end), rows, tolerance)) << whole.name << " from row " << first;
  }
}

TEST(Recurrence, goes_on_from_a_state) {
  for (const Dtype X : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    for (const Recurrence& r : std::vector<Recurrence>{
             {"gated delta", 9, 4, 2, 5, 3, true, Decays::of_heads, Betas::sigmoid, true},
             {"channels", 8, 2, 2, 4, 3, true, Decays::of_channels, Betas::sigmoid, true},
             {"state space", 7, 4, 2, 3, 4, false, Decays::of_heads, Betas::wide, false, false, true}}) {
      for (const auto* kernels : {&kernels::reference_kernels(), &kernels::host_kernels()}) {
        if (X == Dtype::f64 && kernels == &kernels::host_kernels()) continue;
        expect_pieces_like_whole(recurrence_case(r, X, 2), "cached_recur", Tensor(wide(X), {2, r.h * r.dk * r.dv}),
                                 r.S, *kernels,
                                 X == Dtype::f64   ? 1e-14
                                 : X == Dtype::f32 ? 2e-6
                                                   : 0x1p-8);
      }
    }
    for (const auto& [K, D] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {2, 1}, {4, 1}, {3, 2}, {2, 7}}) {
      OpCase whole = convolution_case("convolution", X, 2, 6, 5, K, true, true, false, 1, D);
      expect_pieces_like_whole(whole, "cached_conv", Tensor(X, {2, (K - 1) * D * 5}), 6,
                               kernels::reference_kernels(),
                               X == Dtype::f64   ? 1e-14
                               : X == Dtype::f32 ? 1e-6
                                                 : 0x1p-8);
    }
  }
}

const std::vector<Dtype> kTypes{Dtype::f64, Dtype::f32, Dtype::bf16};

TEST(Recurrence, hands_states_from_piece_to_piece) {
  for (const Dtype X : kTypes) {
    expect_states_like_whole(X, kernels::reference_kernels());
    if (X != Dtype::f64) expect_states_like_whole(X, kernels::host_kernels());
  }
}

TEST(Recurrence, convolves_piece_by_piece) {
  for (const Dtype X : kTypes) {
    expect_convolution_like_whole(X, kernels::reference_kernels());
    if (X != Dtype::f64) expect_convolution_like_whole(X, kernels::host_kernels());
  }
}

class HostRecurrence : public testing::TestWithParam<Dtype> {};
INSTANTIATE_TEST_SUITE_P(Types, HostRecurrence, testing::Values(Dtype::bf16, Dtype::f32),
                         [](const auto& type) { return std::string(name_of(type.param)); });

/// Chunks sum in another order than rows.
double chunk_tolerance(Dtype X) { return X == Dtype::bf16 ? 0x1p-7 : 2e-5; }

TEST_P(HostRecurrence, is_that_of_reference) {
  const Dtype X = GetParam();
  for (const CaseMaker& maker : recurrence_cases()) {
    for (const int64_t B : {0, 3}) expect_gradient_like_reference(maker.make(X, B), chunk_tolerance(X));
  }
}

TEST_P(HostRecurrence, of_many_chunks) {
  const Dtype X = GetParam();
  for (Recurrence r : std::vector<Recurrence>{
           {"gated delta", 200, 4, 2, 32, 48, true, Decays::of_heads, Betas::sigmoid, true},
           {"twice beta", 130, 2, 2, 32, 48, true, Decays::of_heads, Betas::twice_sigmoid, true},
           {"channels", 150, 2, 2, 20, 17, true, Decays::of_channels, Betas::sigmoid, true},
           {"channels without delta", 131, 2, 1, 33, 16, false, Decays::of_channels, Betas::wide},
           {"state space", 193, 6, 2, 16, 40, false, Decays::of_heads, Betas::wide, false, false, true},
           {"slopes", 129, 4, 4, 24, 24, false, Decays::slopes, Betas::none},
           {"wide slopes", 150, 2, 2, 130, 66, false, Decays::slopes, Betas::none}}) {
    for (const bool documents : {false, true}) {
      r.documents = documents;
      expect_gradient_like_reference(recurrence_case(r, X, 2), chunk_tolerance(X));
    }
  }
}

TEST_P(HostRecurrence, convolutions_norms_and_decays) {
  const Dtype X = GetParam();
  for (const int64_t C : {1, 33, 300}) {
    for (const int64_t K : {1, 4, 8}) {
      const bool documents = C == 33;
      expect_gradient_like_reference(
          convolution_case(fmt::format("convolution {}x{}", C, K), X, 2, 70, C, K, true, true, documents),
          chunk_tolerance(X));
    }
    expect_gradient_like_reference(log_decay_case(fmt::format("log_decay {}", C), X, 130, C, 1, true, true),
                                   chunk_tolerance(X));
    expect_gradient_like_reference(log_decay_case(fmt::format("log_decay {}", C), X, 65, 2, C, true, false),
                                   chunk_tolerance(X));
    expect_gradient_like_reference(bounded_decay_case(fmt::format("log_decay {}", C), X, 130, 2, C, C != 33),
                                   chunk_tolerance(X));
    expect_gradient_like_reference(
        gated_norm_case(fmt::format("gated_norm {}", C), X, 130, 3 * C, C, C, false, false), chunk_tolerance(X));
    expect_gradient_like_reference(
        gated_norm_case(fmt::format("gated_norm {}", C), X, 67, 2 * C, 2 * C, C, true, true), chunk_tolerance(X));
  }
}

}  // namespace
}  // namespace heddle::op_runner
