// The end of a step: gradient norm, clipping, AdamW (Loshchilov and Hutter, arXiv 1711.05101).
// A parameter used in several places has one accumulator a use; they are summed in order, in A.
#include <cmath>

#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/reference/operands.h"

namespace heddle::kernels::reference {
namespace {

template <class A>
A sum_of_uses(std::span<const TensorView> uses, int64_t i) {
  A sum = uses[0].as<const A>()[i];
  for (size_t u = 1; u < uses.size(); ++u) sum += uses[u].as<const A>()[i];
  return sum;
}

/// part = Σ (Σ_u acc_u)², the squares summed in f64.
template <class A>
void grad_square_sum(const KernelCall& call) {
  double part = 0;
  for (int64_t i = 0; i < call.in[0].elements(); ++i) {
    const double g = sum_of_uses<A>(call.in, i);
    part += g * g;
  }
  call.out[0].as<double>()[0] = part;
}

void sum_parts(const KernelCall& call) {
  for (int64_t i = 0; i < call.out[0].elements(); ++i) {
    double sum = 0;
    for (const TensorView& part : call.in) sum += part.as<const double>()[i];
    call.out[0].as<double>()[i] = sum;
  }
}

/// norm = √Σ part; clip = min(1, max_norm/(norm + 1e-6)), 1 when max_norm is 0, and 0 when the norm is not finite.
void grad_norm(const KernelCall& call) {
  double sum = 0;
  for (const TensorView& part : call.in) {
    const auto* p = part.as<const double>();
    sum += part.elements() == kSquareLimbs ? ExactSquares::value(p) : p[0];
  }
  const double norm = std::sqrt(sum), max_norm = call.op->attributes.number("max_norm");
  double clip = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  if (!std::isfinite(norm)) clip = 0;
  call.out[0].as<double>()[0] = norm;
  call.out[1].as<double>()[0] = clip;
}

/// in: clip, hyper (learning rate, 1 − β₁ᵗ, 1 − β₂ᵗ), the accumulators; updates: master p, m, v, [copy].
///   g = clip·Σ_u acc_u; m = β₁m + (1 − β₁)g; v = β₂v + (1 − β₂)g²;
///   p −= lr·(m̂/(√v̂ + ε) + decay·p), m̂ = m/hyper[1], v̂ = v/hyper[2].
template <class A>
void adamw(const KernelCall& call) {
  const double clip = call.in[0].as<const double>()[0];
  if (clip == 0) return;
  const ir::Attributes& at = call.op->attributes;
  const A beta1 = static_cast<A>(at.number("beta1")), beta2 = static_cast<A>(at.number("beta2"));
  const A rest1 = static_cast<A>(1 - at.number("beta1")), rest2 = static_cast<A>(1 - at.number("beta2"));
  const A epsilon = static_cast<A>(at.number("epsilon")), decay = static_cast<A>(at.number("decay"));
  const auto* hyper = call.in[1].as<const double>();
  const A rate = static_cast<A>(hyper[0]), grown1 = static_cast<A>(hyper[1]), grown2 = static_cast<A>(hyper[2]);
  const std::span<const TensorView> uses = call.in.subspan(2);
  A *p = accumulator<A>(call.updates[0]), *m = accumulator<A>(call.updates[1]),
    *v = accumulator<A>(call.updates[2]);
  const int64_t count = call.updates[0].elements();
  for (int64_t i = 0; i < count; ++i) {
    const A g = static_cast<A>(clip) * sum_of_uses<A>(uses, i);
    m[i] = beta1 * m[i] + rest1 * g;
    v[i] = beta2 * v[i] + rest2 * g * g;
    const A step = (m[i] / grown1) / (std::sqrt(v[i] / grown2) + epsilon);
    p[i] -= rate * (step + decay * p[i]);
  }
  if (at.integer_or("copy", 0) == 0) return;
  const Output<A> copy(call.updates[3]);
  std::copy_n(p, count, copy.at(0));
}

}  // namespace

std::vector<KernelEntry> optimizer_kernels() {
  return {entry("grad_square_sum", by_type<in0, grad_square_sum<float>, grad_square_sum<double>>),
          entry("sum_parts", sum_parts), entry("grad_norm", grad_norm),
          entry("adamw", by_type<updates0, adamw<float>, adamw<double>>)};
}

}  // namespace heddle::kernels::reference
