// permute, unpermute and their gradients: rows to the experts and back; weigh_dgrad, their part where rows came
// from other ranks. T tokens, H hidden, k experts a token, R = T·k rows; row_of[t, j] is the row of slot j,
// token_of[r] its token. A slot without a row (−1) adds nothing; a row without a token (−1) is zeros, and so is its
// gradient (ops/experts/capacity.cpp).
#include "heddle/device/merge_tree.h"
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
  p_RH.fill(A(0));
  for (int64_t r = 0; r < R; ++r) {
    if (token_of_R[r] >= 0) std::copy_n(x_TH.at(token_of_R[r] * H), H, p_RH.at(r * H));
  }
}

/// For each token in turn, the tree over those of its experts for which it has rows.
template <class A>
class TokenSum {
 public:
  TokenSum(const TensorView& experts, const TensorView& row_of, int64_t width)
      : experts_Tk_(experts.as<const int32_t>()),
        row_of_Tk_(row_of.as<const int32_t>()),
        k_(experts.dim(1)),
        zeros_(static_cast<size_t>(width), A(0)),
        sum_(width) {}
  /// add(sum, slot) for the slots that have a row; the total.
  template <class Add>
  const A* of(int64_t t, Add add) {
    keys_.clear();
    for (int64_t i = t * k_; i < (t + 1) * k_; ++i) {
      if (row_of_Tk_[i] >= 0) keys_.push_back(experts_Tk_[i]);
    }
    if (keys_.empty()) return zeros_.data();
    sum_.begin(keys_);
    for (int64_t i = t * k_; i < (t + 1) * k_; ++i) {
      if (row_of_Tk_[i] >= 0) add(sum_, i);
    }
    return sum_.total();
  }

 private:
  const int32_t *experts_Tk_, *row_of_Tk_;
  int64_t k_;
  std::vector<int64_t> keys_;
  std::vector<A> zeros_;
  device::TreeSum<A> sum_;
};

/// dx_t = Σ_j dp[row_of[t, j]], in the tree.
template <class A>
void permute_dgrad(const KernelCall& call) {
  const Input<A> dp_RH(call.in[0]);
  const auto* row_of_Tk = call.in[1].as<const int32_t>();
  const int64_t T = call.in[1].dim(0), H = call.in[0].dim(1);
  const Output<A> dx_TH(call.out[0]);
  TokenSum<A> sums(call.in[2], call.in[1], H);
  for (int64_t t = 0; t < T; ++t) {
    const A* total = sums.of(t, [&](device::TreeSum<A>& sum, int64_t i) { sum.add(dp_RH.at(row_of_Tk[i] * H)); });
    std::copy_n(total, H, dx_TH.at(t * H));
  }
}

/// c_t = Σ_j g[t, j]·y[row_of[t, j]] in the tree, then + residual.
template <class A>
void unpermute(const KernelCall& call) {
  const Input<A> y_RH(call.in[0]), g_Tk(call.in[1]), residual_TH(operand(call.in, 4));
  const auto* row_of_Tk = call.in[2].as<const int32_t>();
  const int64_t T = call.in[2].dim(0), H = call.in[0].dim(1);
  const Output<A> c_TH(call.out[0]);
  TokenSum<A> sums(call.in[3], call.in[2], H);
  for (int64_t t = 0; t < T; ++t) {
    const A* total =
        sums.of(t, [&](device::TreeSum<A>& sum, int64_t i) { sum.add(y_RH.at(row_of_Tk[i] * H), g_Tk[i]); });
    std::copy_n(total, H, c_TH.at(t * H));
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
  dy_RH.fill(A(0));
  dg_Tk.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      if (row_of_Tk[t * k + j] < 0) continue;
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

/// de_s = g_s·dr_s, dg_s = dr_s·e_s.
template <class A>
void weigh_dgrad(const KernelCall& call) {
  const Input<A> dr_SH(call.in[0]), e_SH(call.in[1]), g_S(call.in[2]);
  const int64_t S = call.in[2].elements(), H = call.in[1].dim(1);
  const Output<A> de_SH(call.out[0]), dg_S(call.out[1]);
  for (int64_t s = 0; s < S; ++s) {
    A dot = 0;
    for (int64_t h = s * H; h < (s + 1) * H; ++h) {
      de_SH[h] = g_S[s] * dr_SH[h];
      dot += dr_SH[h] * e_SH[h];
    }
    dg_S[s] = dot;
  }
}

/// The sum of the gates of a token's experts from `first` on, in order.
template <class A>
A gate_of_zero_experts(const A* g_k, const int32_t* experts_k, int64_t k, int64_t first) {
  A sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += experts_k[j] >= first ? g_k[j] : A(0);
  return sum;
}

/// y_t = z_t·x_t, z_t the gates of experts without computation.
template <class A>
void zero_experts(const KernelCall& call) {
  const Input<A> x_TH(call.in[0]), g_Tk(call.in[1]);
  const auto* experts_Tk = call.in[2].as<const int32_t>();
  const int64_t T = call.in[2].dim(0), k = call.in[2].dim(1), H = call.in[0].dim(1);
  const int64_t first = call.op->attributes.integer("first");
  const Output<A> y_TH(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    const A z = gate_of_zero_experts(g_Tk.at(t * k), experts_Tk + t * k, k, first);
    for (int64_t h = t * H; h < (t + 1) * H; ++h) y_TH[h] = z * x_TH[h];
  }
}

/// in: dy, x, gates, experts. dx_t = z_t·dy_t; dg[t, j] = dy_t·x_t where the expert is without computation, else 0.
template <class A>
void zero_experts_dgrad(const KernelCall& call) {
  const Input<A> dy_TH(call.in[0]), x_TH(call.in[1]), g_Tk(call.in[2]);
  const auto* experts_Tk = call.in[3].as<const int32_t>();
  const int64_t T = call.in[3].dim(0), k = call.in[3].dim(1), H = call.in[0].dim(1);
  const int64_t first = call.op->attributes.integer("first");
  const Output<A> dx_TH(call.out[0]), dg_Tk(call.out[1]);
  for (int64_t t = 0; t < T; ++t) {
    const A z = gate_of_zero_experts(g_Tk.at(t * k), experts_Tk + t * k, k, first);
    A dot = 0;
    for (int64_t h = t * H; h < (t + 1) * H; ++h) {
      dx_TH[h] = z * dy_TH[h];
      dot += dy_TH[h] * x_TH[h];
    }
    for (int64_t j = t * k; j < (t + 1) * k; ++j) dg_Tk[j] = experts_Tk[j] >= first ? dot : A(0);
  }
}

}  // namespace

std::vector<KernelEntry> expert_kernels() {
  return {entry("permute", by_type<in0, permute<float>, permute<double>>),
          entry("permute_dgrad", by_type<in0, permute_dgrad<float>, permute_dgrad<double>>),
          entry("unpermute", by_type<in0, unpermute<float>, unpermute<double>>),
          entry("unpermute_dgrad", by_type<in0, unpermute_dgrad<float>, unpermute_dgrad<double>>),
          entry("weigh_dgrad", by_type<in0, weigh_dgrad<float>, weigh_dgrad<double>>),
          entry("zero_experts", by_type<in0, zero_experts<float>, zero_experts<double>>),
          entry("zero_experts_dgrad", by_type<in0, zero_experts_dgrad<float>, zero_experts_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
