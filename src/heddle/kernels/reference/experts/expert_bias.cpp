// Biases of experts: added to rows sorted by expert, or gated to the tokens' sums of rows, and their gradients.
// T tokens, k experts a token, E experts; R rows, those of expert e from offsets[e] to offsets[e + 1]; N, H
// columns. With copies of other ranks' experts these have the last groups of rows, and operands and sums of their
// own.
#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// y_r = x_r + bias_e.
template <class A>
void add_expert_bias(const KernelCall& call) {
  const Input<A> x_RN(call.in[0]), bias_EN(call.in[1]), copies_CN(operand(call.in, 3));
  const int64_t own = call.in[1].dim(0), E = call.in[2].elements() - 1, N = call.in[1].dim(1);
  const auto* offsets = call.in[2].as<const int32_t>();
  const Output<A> y_RN(call.out[0]);
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r) {
      for (int64_t n = 0; n < N; ++n)
        y_RN[r * N + n] = x_RN[r * N + n] + (e < own ? bias_EN[e * N + n] : copies_CN[(e - own) * N + n]);
    }
  }
}

/// sum_N = Σ of rows first to last, in increasing row.
template <class A>
void sum_rows(const Input<A>& rows_RN, int64_t first, int64_t last, std::vector<A>& sum_N) {
  std::fill(sum_N.begin(), sum_N.end(), A(0));
  const auto N = std::ssize(sum_N);
  for (int64_t r = first; r < last; ++r) {
    for (int64_t n = 0; n < N; ++n) sum_N[n] += rows_RN[r * N + n];
  }
}

/// acc_e += Σ dy over the rows of e; of copies the sum.
template <class A>
void add_expert_bias_wgrad(const KernelCall& call) {
  const Input<A> dy_RN(call.in[0]);
  const int64_t N = call.in[0].dim(1), own = call.updates[0].dim(0), E = call.in[1].elements() - 1;
  const auto* offsets = call.in[1].as<const int32_t>();
  A* acc_EN = accumulator<A>(call.updates[0]);
  A* copies_CN = E > own ? accumulator<A>(call.out[0]) : nullptr;
  std::vector<A> sum_N(static_cast<size_t>(N));
  for (int64_t e = 0; e < E; ++e) {
    sum_rows(dy_RN, offsets[e], offsets[e + 1], sum_N);
    for (int64_t n = 0; n < N; ++n) {
      A& acc = e < own ? acc_EN[e * N + n] : copies_CN[(e - own) * N + n];
      acc = call.overwrite || e >= own ? sum_N[n] : acc + sum_N[n];
    }
  }
}

/// For each expert and source: the partial Σ dy over their rows, rounded and added.
template <class A>
void add_expert_bias_wgrad_exact(const KernelCall& call) {
  const Input<A> dy_RN(call.in[0]);
  const int64_t N = call.in[0].dim(1), own = call.updates[0].dim(0);
  std::vector<A> partial_N(static_cast<size_t>(N));
  for_each_segment(call.in[1], operand(call.in, 2), [&](int64_t e, int64_t first, int64_t last, bool overwrite) {
    sum_rows(dy_RN, first, last, partial_N);
    double* sum = e < own ? call.updates[0].as<double>() + e * N : call.out[0].as<double>() + (e - own) * N;
    add_on_grid(partial_N.data(), N, overwrite && (call.overwrite || e >= own), sum);
  });
}

/// y_t = Σ_j g[t, j]·bias of expert j, in increasing j.
template <class A>
void gated_bias(const KernelCall& call) {
  const Input<A> g_Tk(call.in[0]), bias_EH(call.in[2]);
  const auto* experts_Tk = call.in[1].as<const int32_t>();
  const int64_t T = call.in[1].dim(0), k = call.in[1].dim(1), H = call.in[2].dim(1);
  const Output<A> y_TH(call.out[0]);
  y_TH.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = t * k; j < (t + 1) * k; ++j) {
      for (int64_t h = 0; h < H; ++h) y_TH[t * H + h] += g_Tk[j] * bias_EH[experts_Tk[j] * H + h];
    }
  }
}

/// dg[t, j] = dy_t · bias of expert j.
template <class A>
void gated_bias_dgrad(const KernelCall& call) {
  const Input<A> dy_TH(call.in[0]), bias_EH(call.in[2]);
  const auto* experts_Tk = call.in[1].as<const int32_t>();
  const int64_t T = call.in[1].dim(0), k = call.in[1].dim(1), H = call.in[2].dim(1);
  const Output<A> dg_Tk(call.out[0]);
  for (int64_t i = 0; i < T * k; ++i) {
    A dot = 0;
    for (int64_t h = 0; h < H; ++h) dot += dy_TH[i / k * H + h] * bias_EH[experts_Tk[i] * H + h];
    dg_Tk[i] = dot;
  }
}

/// acc_e += Σ g·dy over the tokens that chose e, in increasing token.
template <class A>
void gated_bias_wgrad(const KernelCall& call) {
  const Input<A> dy_TH(call.in[0]), g_Tk(call.in[1]);
  const auto* experts_Tk = call.in[2].as<const int32_t>();
  const int64_t T = call.in[2].dim(0), k = call.in[2].dim(1), H = call.in[0].dim(1);
  const int64_t count = call.updates[0].elements();
  std::vector<A> sum_EH(static_cast<size_t>(count), A(0));
  for (int64_t i = 0; i < T * k; ++i) {
    A* sum_H = sum_EH.data() + experts_Tk[i] * H;
    for (int64_t h = 0; h < H; ++h) sum_H[h] += g_Tk[i] * dy_TH[i / k * H + h];
  }
  A* acc_EH = accumulator<A>(call.updates[0]);
  for (int64_t i = 0; i < count; ++i) acc_EH[i] = call.overwrite ? sum_EH[i] : acc_EH[i] + sum_EH[i];
}

}  // namespace

std::vector<KernelEntry> expert_bias_kernels() {
  return {entry("add_expert_bias", by_type<in0, add_expert_bias<float>, add_expert_bias<double>>),
          entry("add_expert_bias_wgrad", by_type<in0, add_expert_bias_wgrad<float>, add_expert_bias_wgrad<double>>),
          entry("add_expert_bias_wgrad_exact",
                by_type<in0, add_expert_bias_wgrad_exact<float>, add_expert_bias_wgrad_exact<double>>),
          entry("gated_bias", by_type<out0, gated_bias<float>, gated_bias<double>>),
          entry("gated_bias_dgrad", by_type<in0, gated_bias_dgrad<float>, gated_bias_dgrad<double>>),
          entry("gated_bias_wgrad", by_type<in0, gated_bias_wgrad<float>, gated_bias_wgrad<double>>)};
}

}  // namespace heddle::kernels::reference
