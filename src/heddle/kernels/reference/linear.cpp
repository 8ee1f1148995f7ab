// linear, grouped_linear, their gradients, add_bias, and the casts of weights. T rows, K in, N out; R rows sorted
// by expert, E experts, expert e having rows offsets[e] … offsets[e+1].
#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/product.h"

namespace heddle::kernels::reference {
namespace {

/// Adds Σ_t dy_t to acc, each sum in increasing t.
template <class A>
void add_column_sums(const Input<A>& dy_TN, int64_t T, int64_t N, A* acc_N, bool overwrite) {
  std::vector<A> sum_N(static_cast<size_t>(N), A(0));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t n = 0; n < N; ++n) sum_N[n] += dy_TN[t * N + n];
  }
  for (int64_t n = 0; n < N; ++n) {
    acc_N[n] = overwrite ? sum_N[n] : acc_N[n] + sum_N[n];
  }
}

/// y = x wᵀ + bias: the sum over k first, then the bias.
template <class A>
void linear(const KernelCall& call) {
  const Input<A> x_TK(call.in[0]), w_NK(call.in[1]), bias_N(operand(call.in, 2));
  const int64_t T = call.in[0].dim(0), K = call.in[1].dim(1), N = call.in[1].dim(0);
  const Output<A> y_TN(call.out[0]);
  product<A>(T, N, K, plain(x_TK.at(0), K), transposed(w_NK.at(0), K), y_TN.at(0));
  if (!bias_N) return;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t n = 0; n < N; ++n) y_TN[t * N + n] += bias_N[n];
  }
}

/// dx = dy w.
template <class A>
void linear_dgrad(const KernelCall& call) {
  const Input<A> dy_TN(call.in[0]), w_NK(call.in[1]);
  const int64_t T = call.in[0].dim(0), K = call.in[1].dim(1), N = call.in[1].dim(0);
  const Output<A> dx_TK(call.out[0]);
  product<A>(T, K, N, plain(dy_TN.at(0), N), plain(w_NK.at(0), K), dx_TK.at(0));
}

/// acc += dyᵀ x, bias_acc += Σ_t dy.
template <class A>
void linear_wgrad(const KernelCall& call) {
  const Input<A> x_TK(call.in[0]), dy_TN(call.in[1]);
  const int64_t T = call.in[0].dim(0), K = call.in[0].dim(1), N = call.in[1].dim(1);
  A* acc_NK = accumulator<A>(call.updates[0]);
  product<A>(N, K, T, transposed(dy_TN.at(0), N), plain(x_TK.at(0), K), acc_NK, !call.overwrite);
  const TensorView bias = operand(call.updates, 1);
  if (bias) add_column_sums(dy_TN, T, N, accumulator<A>(bias), call.overwrite);
}

template <class A>
void add_bias(const KernelCall& call) {
  const Input<A> x_TN(call.in[0]), bias_N(call.in[1]);
  const int64_t T = call.in[0].dim(0), N = call.in[0].dim(1);
  const Output<A> y_TN(call.out[0]);
  for (int64_t i = 0; i < T * N; ++i) y_TN[i] = x_TN[i] + bias_N[i % N];
}

template <class A>
void add_bias_wgrad(const KernelCall& call) {
  add_column_sums(Input<A>(call.in[0]), call.in[0].dim(0), call.in[0].dim(1), accumulator<A>(call.updates[0]),
                  call.overwrite);
}

/// The rows of each expert, checked against the number of rows there are.
struct ExpertRows {
  ExpertRows(const TensorView& offsets, int64_t rows) : first(offsets.as<const int32_t>()) {
    const int64_t E = offsets.elements() - 1;
    HEDDLE_CHECK(first[0] == 0 && first[E] == rows, "offsets run from {} to {}, there are {} rows", first[0],
                 first[E], rows);
  }
  int64_t begin(int64_t e) const { return first[e]; }
  int64_t count(int64_t e) const { return first[e + 1] - first[e]; }
  const int32_t* first;
};

/// y_r = x_r w_eᵀ; the last experts are copies of other ranks', with weights of their own.
template <class A>
void grouped_linear(const KernelCall& call) {
  const Input<A> x_RK(call.in[0]), w_ENK(call.in[1]), copies_CNK(operand(call.in, 3));
  const int64_t R = call.in[0].dim(0), E = call.in[1].dim(0), N = call.in[1].dim(1), K = call.in[1].dim(2);
  const ExpertRows rows(call.in[2], R);
  const Output<A> y_RN(call.out[0]);
  for (int64_t e = 0; e < call.in[2].elements() - 1; ++e) {
    const A* w_NK = e < E ? w_ENK.at(e * N * K) : copies_CNK.at((e - E) * N * K);
    product<A>(rows.count(e), N, K, plain(x_RK.at(rows.begin(e) * K), K), transposed(w_NK, K),
               y_RN.at(rows.begin(e) * N));
  }
}

/// dx_r = dy_r w_e, likewise.
template <class A>
void grouped_linear_dgrad(const KernelCall& call) {
  const Input<A> dy_RN(call.in[0]), w_ENK(call.in[1]), copies_CNK(operand(call.in, 3));
  const int64_t R = call.in[0].dim(0), E = call.in[1].dim(0), N = call.in[1].dim(1), K = call.in[1].dim(2);
  const ExpertRows rows(call.in[2], R);
  const Output<A> dx_RK(call.out[0]);
  for (int64_t e = 0; e < call.in[2].elements() - 1; ++e) {
    const A* w_NK = e < E ? w_ENK.at(e * N * K) : copies_CNK.at((e - E) * N * K);
    product<A>(rows.count(e), K, N, plain(dy_RN.at(rows.begin(e) * N), N), plain(w_NK, K),
               dx_RK.at(rows.begin(e) * K));
  }
}

/// acc_e += Σ over the rows of e of dy_rᵀ x_r; of a copy the sum by itself.
template <class A>
void grouped_linear_wgrad(const KernelCall& call) {
  const Input<A> x_RK(call.in[0]), dy_RN(call.in[1]);
  const int64_t R = call.in[0].dim(0), K = call.in[0].dim(1), N = call.in[1].dim(1);
  const int64_t E = call.updates[0].dim(0);
  const ExpertRows rows(call.in[2], R);
  A* acc_ENK = accumulator<A>(call.updates[0]);
  for (int64_t e = 0; e < call.in[2].elements() - 1; ++e) {
    const bool own = e < E;
    A* sum_NK = own ? acc_ENK + e * N * K : accumulator<A>(call.out[0]) + (e - E) * N * K;
    product<A>(N, K, rows.count(e), transposed(dy_RN.at(rows.begin(e) * N), N),
               plain(x_RK.at(rows.begin(e) * K), K), sum_NK, own && !call.overwrite);
  }
}

/// w = master, rounded.
template <class A>
void cast_weight(const KernelCall& call) {
  const Input<A> master(call.in[0]);
  const Output<A> w(call.updates[0]);
  std::copy_n(master.at(0), call.in[0].elements(), w.at(0));
}

}  // namespace

std::vector<KernelEntry> linear_kernels() {
  return {entry("linear", by_type<in0, linear<float>, linear<double>>),
          entry("detached_linear", by_type<in0, linear<float>, linear<double>>),
          entry("linear_dgrad", by_type<in0, linear_dgrad<float>, linear_dgrad<double>>),
          entry("linear_wgrad", by_type<in0, linear_wgrad<float>, linear_wgrad<double>>),
          entry("add_bias", by_type<in0, add_bias<float>, add_bias<double>>),
          entry("add_bias_wgrad", by_type<in0, add_bias_wgrad<float>, add_bias_wgrad<double>>),
          entry("grouped_linear", by_type<in0, grouped_linear<float>, grouped_linear<double>>),
          entry("grouped_linear_dgrad", by_type<in0, grouped_linear_dgrad<float>, grouped_linear_dgrad<double>>),
          entry("grouped_linear_wgrad", by_type<in0, grouped_linear_wgrad<float>, grouped_linear_wgrad<double>>),
          // Refused where the weight is packed, as it is meant to be; unpacked, packing is a cast.
          entry("pack_weight", by_type<in0, cast_weight<float>, cast_weight<double>>),
          entry("cast_weight", by_type<in0, cast_weight<float>, cast_weight<double>>)};
}

}  // namespace heddle::kernels::reference
