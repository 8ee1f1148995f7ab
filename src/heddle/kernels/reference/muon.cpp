// Muon's steps between its products; see ops/muon.cpp. What a gradient that is not finite leaves out (clip 0) moves
// nothing: the direction is zero.
#include <cmath>
#include <vector>

#include "heddle/kernels/matrix_places.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

/// g = clip·Σ_u acc_u; m = µ·m + g; u = g + µ·m.
template <class A>
void muon_momentum(const KernelCall& call) {
  A* m = accumulator<A>(call.updates[0]);
  const auto clip = static_cast<A>(call.in[0].as<const double>()[0]);
  const auto momentum = static_cast<A>(call.op->attributes.number("momentum"));
  const Output<A> u(call.out[0]);
  for (int64_t i = 0; i < call.updates[0].elements(); ++i) {
    A sum = call.in[1].as<const A>()[i];
    for (size_t use = 2; use < call.in.size(); ++use) sum += call.in[use].as<const A>()[i];
    if (clip == 0) {
      u[i] = 0;
      continue;
    }
    const A g = clip * sum;
    m[i] = momentum * m[i] + g;
    u[i] = g + momentum * m[i];
  }
}

/// x = each matrix ÷ (the root of its squares' sum + 10⁻⁷), the squares summed in f64 in the order of x.
template <class A>
void unit_matrices(const KernelCall& call) {
  const MatrixPlaces at(call.op->attributes);
  const Input<A> stack(call.in[0]);
  const Output<A> x(call.out[0]);
  for (int64_t k = 0; k < at.count; ++k) {
    double sum = 0;
    for (int64_t i = 0; i < at.size(); ++i) {
      const double u = stack[k * at.size() + at.of(i)];
      sum += u * u;
    }
    const auto norm = static_cast<A>(std::sqrt(sum) + kLeastMatrixNorm);
    for (int64_t i = 0; i < at.size(); ++i) x[k * at.size() + i] = stack[k * at.size() + at.of(i)] / norm;
  }
}

template <class A>
void place_matrices(const KernelCall& call) {
  const MatrixPlaces at(call.op->attributes);
  const Input<A> x(call.in[0]);
  const Output<A> stack(call.out[0]);
  for (int64_t k = 0; k < at.count; ++k) {
    for (int64_t i = 0; i < at.size(); ++i) stack[k * at.size() + at.of(i)] = x[k * at.size() + i];
  }
}

void even_offsets(const KernelCall& call) {
  const int64_t rows = call.op->attributes.integer("rows");
  for (int64_t i = 0; i < call.out[0].elements(); ++i)
    call.out[0].as<int32_t>()[i] = static_cast<int32_t>(i * rows);
}

/// y = α·x + β·z.
template <class A>
void scaled_sum(const KernelCall& call) {
  const Input<A> x(call.in[0]), z(call.in[1]);
  const Output<A> y(call.out[0]);
  const auto alpha = static_cast<A>(call.op->attributes.number("alpha"));
  const auto beta = static_cast<A>(call.op->attributes.number("beta"));
  for (int64_t i = 0; i < call.out[0].elements(); ++i) y[i] = alpha * x[i] + beta * z[i];
}

/// p −= rate·(scale·o + decay·p); the copy is made of the master in any case.
template <class A>
void muon_step(const KernelCall& call) {
  A* p = accumulator<A>(call.updates[0]);
  const int64_t count = call.updates[0].elements();
  const auto rate = static_cast<A>(call.in[1].as<const double>()[0]);
  const auto scale = static_cast<A>(call.op->attributes.number("scale"));
  const auto decay = static_cast<A>(call.op->attributes.number("decay"));
  if (call.in[0].as<const double>()[0] != 0) {
    const Input<A> o(call.in[2]);
    for (int64_t i = 0; i < count; ++i) p[i] -= rate * (scale * o[i] + decay * p[i]);
  }
  if (call.op->attributes.integer("copy") == 0) return;
  const Output<A> copy(call.updates[1]);
  std::copy_n(p, count, copy.at(0));
}

}  // namespace

std::vector<KernelEntry> muon_kernels() {
  return {entry("muon_momentum", by_type<updates0, muon_momentum<float>, muon_momentum<double>>),
          entry("unit_matrices", by_type<in0, unit_matrices<float>, unit_matrices<double>>),
          entry("place_matrices", by_type<in0, place_matrices<float>, place_matrices<double>>),
          entry("even_offsets", even_offsets),
          entry("scaled_sum", by_type<in0, scaled_sum<float>, scaled_sum<double>>),
          entry("muon_step", by_type<updates0, muon_step<float>, muon_step<double>>)};
}

}  // namespace heddle::kernels::reference
