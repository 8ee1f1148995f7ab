// rms_norm, add_rms_norm, rms_norm_dgrad, the same of layer_norm, add, scale, scale_by, accumulate. H is the gain's
// width, T the runs of that width.
#include <algorithm>
#include <cmath>

#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

template <class A>
A offset_of(const KernelCall& call) {
  return static_cast<A>(call.op->attributes.number_or("offset", 0));
}

/// rstd = (mean x² + ε)^−½, y = x·rstd·(offset + g), for one row.
template <class A>
void norm_row(const A* x_H, const Input<A>& g_H, A offset, int64_t H, double epsilon, A* y_H, A* rstd) {
  A sum = 0;
  for (int64_t h = 0; h < H; ++h) sum += x_H[h] * x_H[h];
  *rstd = A(1) / std::sqrt(sum / static_cast<A>(H) + static_cast<A>(epsilon));
  for (int64_t h = 0; h < H; ++h) y_H[h] = x_H[h] * *rstd * (offset + g_H[h]);
}

template <class A>
void rms_norm(const KernelCall& call) {
  const Input<A> x_TH(call.in[0]), g_H(call.in[1]);
  const int64_t H = call.in[1].elements(), T = call.in[0].elements() / H;
  const double epsilon = call.op->attributes.number("epsilon");
  const Output<A> y_TH(call.out[0]), rstd_T(call.out[1]);
  for (int64_t t = 0; t < T; ++t)
    norm_row(x_TH.at(t * H), g_H, offset_of<A>(call), H, epsilon, y_TH.at(t * H), rstd_T.at(t));
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
  for (int64_t t = 0; t < T; ++t)
    norm_row(s_TH.at(t * H), g_H, offset_of<A>(call), H, epsilon, y_TH.at(t * H), rstd_T.at(t));
}

/// With the offset in g, dx = dres + rstd·(g·dy − x·rstd²·mean(g·dy·x)); dg = Σ_t dy·x·rstd, in increasing t.
template <class A>
void rms_norm_dgrad(const KernelCall& call) {
  const Input<A> dy_TH(call.in[0]), x_TH(call.in[1]), g_H(call.in[2]), rstd_T(call.in[3]);
  const Input<A> dres_TH(operand(call.in, 4));
  const int64_t H = call.in[2].elements(), T = call.in[0].elements() / H;
  const A offset = offset_of<A>(call);
  const Output<A> dx_TH(call.out[0]), dg_H(call.out[1]);
  dg_H.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    const A *dy = dy_TH.at(t * H), *x = x_TH.at(t * H);
    const A rstd = rstd_T[t];
    A sum = 0;
    for (int64_t h = 0; h < H; ++h) sum += (offset + g_H[h]) * dy[h] * x[h];
    const A along_x = rstd * rstd * (sum / static_cast<A>(H));
    for (int64_t h = 0; h < H; ++h) {
      const A dx = rstd * ((offset + g_H[h]) * dy[h] - x[h] * along_x);
      dx_TH[t * H + h] = dres_TH ? dres_TH[t * H + h] + dx : dx;
      dg_H[h] += dy[h] * x[h] * rstd;
    }
  }
}

/// The mean and rstd = (mean (x − mean)² + ε)^−½ of a row, y = (x − mean)·rstd·g + b.
template <class A>
void layer_norm_row(const A* x_H, const Input<A>& g_H, const Input<A>& b_H, int64_t H, double epsilon, A* y_H,
                    A* mean, A* rstd) {
  A sum = 0, squares = 0;
  for (int64_t h = 0; h < H; ++h) sum += x_H[h];
  *mean = sum / static_cast<A>(H);
  for (int64_t h = 0; h < H; ++h) squares += (x_H[h] - *mean) * (x_H[h] - *mean);
  *rstd = A(1) / std::sqrt(squares / static_cast<A>(H) + static_cast<A>(epsilon));
  for (int64_t h = 0; h < H; ++h) y_H[h] = (x_H[h] - *mean) * *rstd * g_H[h] + b_H[h];
}

/// `first`: of the operands and results, that of the norm itself.
template <class A>
void layer_norm_rows(const KernelCall& call, const TensorView& normed, size_t first) {
  const Input<A> x_TH(normed), g_H(call.in[first + 1]), b_H(call.in[first + 2]);
  const int64_t H = normed.dim(1), T = normed.dim(0);
  const double epsilon = call.op->attributes.number("epsilon");
  const Output<A> y_TH(call.out[first]), mean_T(call.out[first + 1]), rstd_T(call.out[first + 2]);
  for (int64_t t = 0; t < T; ++t)
    layer_norm_row(x_TH.at(t * H), g_H, b_H, H, epsilon, y_TH.at(t * H), mean_T.at(t), rstd_T.at(t));
}

template <class A>
void layer_norm(const KernelCall& call) {
  layer_norm_rows<A>(call, call.in[0], 0);
}

template <class A>
void add(const KernelCall& call) {
  const Input<A> a(call.in[0]), b(call.in[1]);
  const Output<A> y(call.out[0]);
  for (int64_t i = 0; i < call.out[0].elements(); ++i) y[i] = a[i] + b[i];
}

/// s = a + b rounded to its type; the norm is of the rounded s.
template <class A>
void add_layer_norm(const KernelCall& call) {
  add<A>(call);
  layer_norm_rows<A>(call, call.out[0], 1);
}

/// With x̂ = (x − mean)·rstd: dx = dres + rstd·(g·dy − mean(g·dy) − x̂·mean(g·dy·x̂)); dg = Σ_t dy·x̂, db = Σ_t dy, in
/// increasing t.
template <class A>
void layer_norm_dgrad(const KernelCall& call) {
  const Input<A> dy_TH(call.in[0]), x_TH(call.in[1]), g_H(call.in[2]), mean_T(call.in[3]), rstd_T(call.in[4]);
  const Input<A> dres_TH(operand(call.in, 5));
  const int64_t T = call.in[0].dim(0), H = call.in[0].dim(1);
  const Output<A> dx_TH(call.out[0]), dg_H(call.out[1]), db_H(call.out[2]);
  dg_H.fill(A(0));
  db_H.fill(A(0));
  for (int64_t t = 0; t < T; ++t) {
    const A *dy = dy_TH.at(t * H), *x = x_TH.at(t * H);
    const A mean = mean_T[t], rstd = rstd_T[t];
    A sum = 0, along = 0;
    for (int64_t h = 0; h < H; ++h) {
      sum += g_H[h] * dy[h];
      along += g_H[h] * dy[h] * ((x[h] - mean) * rstd);
    }
    sum /= static_cast<A>(H);
    along /= static_cast<A>(H);
    for (int64_t h = 0; h < H; ++h) {
      const A normed = (x[h] - mean) * rstd, dx = rstd * (g_H[h] * dy[h] - sum - normed * along);
      dx_TH[t * H + h] = dres_TH ? dres_TH[t * H + h] + dx : dx;
      dg_H[h] += dy[h] * normed;
      db_H[h] += dy[h];
    }
  }
}

template <class A>
void scale(const KernelCall& call) {
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  const auto factor = static_cast<A>(call.op->attributes.number("factor"));
  for (int64_t i = 0; i < call.out[0].elements(); ++i) y[i] = factor * x[i];
}

/// y_i = s[index_i]·x_i, or s of its row, or of all.
template <class A>
void scale_by(const KernelCall& call) {
  const Input<A> x(call.in[0]), s(call.in[1]);
  const TensorView index = operand(call.in, 2);
  const Output<A> y(call.out[0]);
  const int64_t numbers = call.out[0].elements(), each = numbers / std::max<int64_t>(1, call.in[1].elements());
  for (int64_t i = 0; i < numbers; ++i) y[i] = s[index ? index.as<const int32_t>()[i] : i / each] * x[i];
}

/// acc_n += Σ dy·x over the elements whose index is n, in increasing place.
template <class A>
void scale_by_wgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]), x(call.in[1]);
  const auto* index = call.in[2].as<const int32_t>();
  std::vector<A> sums(static_cast<size_t>(call.updates[0].elements()), A(0));
  for (int64_t i = 0; i < call.in[0].elements(); ++i) sums[static_cast<size_t>(index[i])] += dy[i] * x[i];
  A* acc = accumulator<A>(call.updates[0]);
  for (size_t n = 0; n < sums.size(); ++n) acc[n] = call.overwrite ? sums[n] : acc[n] + sums[n];
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
          entry("layer_norm", by_type<in0, layer_norm<float>, layer_norm<double>>),
          entry("add_layer_norm", by_type<in0, add_layer_norm<float>, add_layer_norm<double>>),
          entry("layer_norm_dgrad", by_type<in0, layer_norm_dgrad<float>, layer_norm_dgrad<double>>),
          entry("add", by_type<in0, add<float>, add<double>>),
          entry("scale", by_type<in0, scale<float>, scale<double>>),
          entry("scale_by", by_type<in0, scale_by<float>, scale_by<double>>),
          entry("scale_by_wgrad", by_type<in0, scale_by_wgrad<float>, scale_by_wgrad<double>>),
          entry("accumulate", by_type<updates0, accumulate<float>, accumulate<double>>)};
}

}  // namespace heddle::kernels::reference
