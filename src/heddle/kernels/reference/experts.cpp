// permute, unpermute and their gradients: rows to the experts and back.
// T tokens, H hidden, k experts a token, R = T·k rows; row_of[t, j] is the row of slot j, token_of[r] its token.
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// p_r = x[token_of_r].
template <class A>
void permute(const KernelCall& call) {
  const Input<A> x_TH(call.in[0]);
  const auto* token_of_R = call.in[2].as<const int32_t>();
  const int64_t H = call.in[0].dim(1), R = call.in[2].elements();
  const Output<A> p_RH(call.out[0]);
  for (int64_t r = 0; r < R; ++r) std::copy_n(x_TH.at(token_of_R[r] * H), H, p_RH.at(r * H));
}

/// dx_t = Σ_j dp[row_of[t, j]], in increasing j.
template <class A>
void permute_dgrad(const KernelCall& call) {
  const Input<A> dp_RH(call.in[0]);
  const auto* row_of_Tk = call.in[1].as<const int32_t>();
  const int64_t T = call.in[1].dim(0), k = call.in[1].dim(1), H = call.in[0].dim(1);
  const Output<A> dx_TH(call.out[0]);
  dx_TH.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const A* dp = dp_RH.at(row_of_Tk[t * k + j] * H);
      for (int64_t h = 0; h < H; ++h) dx_TH[t * H + h] += dp[h];
    }
  }
}

/// c_t = Σ_j g[t, j]·y[row_of[t, j]] in increasing j, then + residual.
template <class A>
void unpermute(const KernelCall& call) {
  const Input<A> y_RH(call.in[0]), g_Tk(call.in[1]), residual_TH(operand(call.in, 3));
  const auto* row_of_Tk = call.in[2].as<const int32_t>();
  const int64_t T = call.in[2].dim(0), k = call.in[2].dim(1), H = call.in[0].dim(1);
  const Output<A> c_TH(call.out[0]);
  c_TH.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const A* y = y_RH.at(row_of_Tk[t * k + j] * H);
      for (int64_t h = 0; h < H; ++h) c_TH[t * H + h] += g_Tk[t * k + j] * y[h];
    }
    if (!residual_TH) continue;
    for (int64_t h = 0; h < H; ++h) c_TH[t * H + h] += residual_TH[t * H + h];
  }
}

/// dy_r = g·dc_t, dg = dc_t·y_r.
template <class A>
void unpermute_dgrad(const KernelCall& call) {
  const Input<A> dc_TH(call.in[0]), y_RH(call.in[1]), g_Tk(call.in[2]);
  const auto* row_of_Tk = call.in[3].as<const int32_t>();
  const int64_t T = call.in[3].dim(0), k = call.in[3].dim(1), H = call.in[0].dim(1);
  const Output<A> dy_RH(call.out[0]), dg_Tk(call.out[1]);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      const int64_t row = row_of_Tk[t * k + j] * H;
      A dot = 0;
      for (int64_t h = 0; h < H; ++h) {
        dy_RH[row + h] = g_Tk[t * k + j] * dc_TH[t * H + h];
        dot += dc_TH[t * H + h] * y_RH[row + h];
      }
      dg_Tk[t * k + j] = dot;
    }
  }
}

}  // namespace

std::vector<KernelEntry> expert_kernels() {
  return {entry("permute", by_type<in0, permute<float>, permute<double>>),
          entry("permute_dgrad", by_type<in0, permute_dgrad<float>, permute_dgrad<double>>),
          entry("unpermute", by_type<in0, unpermute<float>, unpermute<double>>),
          entry("unpermute_dgrad", by_type<in0, unpermute_dgrad<float>, unpermute_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
