// rms_norm, add_rms_norm, rms_norm_dgrad, add, accumulate. H is the gain's width, T the runs of that width.
#include <cmath>

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// rstd = (mean x² + ε)^−½, y = x·rstd·g, for one row.
template <class A>
void norm_row(const A* x_H, const Input<A>& g_H, int64_t H, double epsilon, A* y_H, A* rstd) {
  A sum = 0;
  for (int64_t h = 0; h < H; ++h) sum += x_H[h] * x_H[h];
  *rstd = A(1) / std::sqrt(sum / static_cast<A>(H) + static_cast<A>(epsilon));
  for (int64_t h = 0; h < H; ++h) y_H[h] = x_H[h] * *rstd * g_H[h];
}

template <class A>
void rms_norm(const KernelCall& call) {
  const Input<A> x_TH(call.in[0]), g_H(call.in[1]);
  const int64_t H = call.in[1].elements(), T = call.in[0].elements() / H;
  const double epsilon = call.op->attributes.number("epsilon");
  const Output<A> y_TH(call.out[0]), rstd_T(call.out[1]);
  for (int64_t t = 0; t < T; ++t) norm_row(x_TH.at(t * H), g_H, H, epsilon, y_TH.at(t * H), rstd_T.at(t));
}

/// s = a + b rounded to its type; the norm is of the rounded s.
template <class A>
void add_rms_norm(const KernelCall& call) {
  const int64_t T = call.in[0].dim(0), H = call.in[0].dim(1);
  {
    const Input<A> a_TH(call.in[0]), b_TH(call.in[1]);
    const Output<A> s_TH(call.out[0]);
    for (int64_t i = 0; i < T * H; ++i) s_TH[i] = a_TH[i] + b_TH[i];
  }
  const Input<A> s_TH(call.out[0]), g_H(call.in[2]);
  const double epsilon = call.op->attributes.number("epsilon");
  const Output<A> y_TH(call.out[1]), rstd_T(call.out[2]);
  for (int64_t t = 0; t < T; ++t) norm_row(s_TH.at(t * H), g_H, H, epsilon, y_TH.at(t * H), rstd_T.at(t));
}

/// dx = dres + rstd·(g·dy − x·rstd²·mean(g·dy·x)); dg = Σ_t dy·x·rstd, in increasing t.
template <class A>
void rms_norm_dgrad(const KernelCall& call) {
  const Input<A> dy_TH(call.in[0]), x_TH(call.in[1]), g_H(call.in[2]), rstd_T(call.in[3]);
  const Input<A> dres_TH(operand(call.in, 4));
  const int64_t H = call.in[2].elements(), T = call.in[0].elements() / H;
  const Output<A> dx_TH(call.out[0]), dg_H(call.out[1]);
  dg_H.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    const A *dy = dy_TH.at(t * H), *x = x_TH.at(t * H);
    const A rstd = rstd_T[t];
    A sum = 0;
    for (int64_t h = 0; h < H; ++h) sum += g_H[h] * dy[h] * x[h];
    const A along_x = rstd * rstd * (sum / static_cast<A>(H));
    for (int64_t h = 0; h < H; ++h) {
      const A dx = rstd * (g_H[h] * dy[h] - x[h] * along_x);
      dx_TH[t * H + h] = dres_TH ? dres_TH[t * H + h] + dx : dx;
      dg_H[h] += dy[h] * x[h] * rstd;
    }
  }
}

template <class A>
void add(const KernelCall& call) {
  const Input<A> a(call.in[0]), b(call.in[1]);
  const Output<A> y(call.out[0]);
  for (int64_t i = 0; i < call.out[0].elements(); ++i) y[i] = a[i] + b[i];
}

template <class A>
void scale(const KernelCall& call) {
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  const auto factor = static_cast<A>(call.op->attributes.number("factor"));
  for (int64_t i = 0; i < call.out[0].elements(); ++i) y[i] = factor * x[i];
}

/// acc += p, in the type of acc.
template <class A>
void accumulate(const KernelCall& call) {
  const Input<A> p(call.in[0]);
  A* acc = accumulator<A>(call.updates[0]);
  for (int64_t i = 0; i < call.updates[0].elements(); ++i) acc[i] = call.overwrite ? p[i] : acc[i] + p[i];
}

}  // namespace

std::vector<KernelEntry> norm_kernels() {
  return {entry("rms_norm", by_type<in0, rms_norm<float>, rms_norm<double>>),
          entry("add_rms_norm", by_type<in0, add_rms_norm<float>, add_rms_norm<double>>),
          entry("rms_norm_dgrad", by_type<in0, rms_norm_dgrad<float>, rms_norm_dgrad<double>>),
          entry("add", by_type<in0, add<float>, add<double>>),
          entry("scale", by_type<in0, scale<float>, scale<double>>),
          entry("accumulate", by_type<updates0, accumulate<float>, accumulate<double>>)};
}

}  // namespace heddle::kernels::reference
