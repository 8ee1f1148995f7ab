// The end of a step: gradient norm, clipping, AdamW (Loshchilov and Hutter, arXiv 1711.05101).
// A parameter used in several places has one accumulator a use; they are summed in order, in A.
#include <cmath>

#include "heddle/base/numbers/split_float.h"
#include "heddle/kernels/exact_grid.h"
#include "heddle/kernels/one_by_one.h"
#include "heddle/kernels/reference/operands.h"
#include "heddle/ops/moment_byte.h"

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

/// skipped = 0 where norm and loss are finite and within limits[0] and limits[1], else 1; then clip and the rate of
/// the balancing biases, hyper[3], are 0.
void skip_outlier(const KernelCall& call) {
  const auto given = [&](size_t i) { return call.in[i].as<const double>(); };
  const auto within = [&](double value, double limit) { return std::isfinite(value) && value <= limit; };
  const bool skipped = !within(given(0)[0], given(3)[0]) || !within(given(4)[0], given(3)[1]);
  call.out[0].as<double>()[0] = skipped ? 0 : given(1)[0];
  auto* hyper = call.out[1].as<double>();
  std::copy_n(given(2), 4, hyper);
  if (skipped) hyper[3] = 0;
  call.out[2].as<double>()[0] = skipped ? 1 : 0;
}

/// in: clip, hyper (learning rate, 1 − β₁ᵗ, 1 − β₂ᵗ), the accumulators. For each element
///   g = clip·Σ_u acc_u; m = β₁m + (1 − β₁)g; v = β₂v + (1 − β₂)g²;
///   p −= lr·(m̂/(√v̂ + ε) + decay·p), m̂ = m/hyper[1], v̂ = v/hyper[2].
template <class A>
class Adamw {
 public:
  explicit Adamw(const KernelCall& call)
      : uses_(call.in.subspan(2)),
        clip_(static_cast<A>(call.in[0].as<const double>()[0])),
        beta1_(static_cast<A>(call.op->attributes.number("beta1"))),
        beta2_(static_cast<A>(call.op->attributes.number("beta2"))),
        rest1_(static_cast<A>(1 - call.op->attributes.number("beta1"))),
        rest2_(static_cast<A>(1 - call.op->attributes.number("beta2"))),
        epsilon_(static_cast<A>(call.op->attributes.number("epsilon"))),
        decay_(static_cast<A>(call.op->attributes.number("decay"))) {
    const auto* hyper = call.in[1].as<const double>();
    rate_ = static_cast<A>(hyper[0]);
    grown1_ = static_cast<A>(hyper[1]);
    grown2_ = static_cast<A>(hyper[2]);
  }

  void step(int64_t i, A& p, A& m, A& v) const {
    const A g = clip_ * sum_of_uses<A>(uses_, i);
    m = beta1_ * m + rest1_ * g;
    v = beta2_ * v + rest2_ * g * g;
    const A step = (m / grown1_) / (std::sqrt(v / grown2_) + epsilon_);
    p -= rate_ * (step + decay_ * p);
  }

 private:
  std::span<const TensorView> uses_;
  A clip_, beta1_, beta2_, rest1_, rest2_, epsilon_, decay_, rate_ = 0, grown1_ = 0, grown2_ = 0;
};

/// A gradient that is not finite: the step is left out.
bool left_out(const KernelCall& call) { return call.in[0].as<const double>()[0] == 0; }

/// The moments of the operands m and v: both kept as M, or the first in a byte beside the second.
template <class A, class M>
struct Moments {
  M *m, *v;
  Moments(const TensorView& first, const TensorView& second) : m(first.as<M>()), v(second.as<M>()) {}
  A first(int64_t i) const { return m[i]; }
  A second(int64_t i) const { return v[i]; }
  void keep(int64_t i, A first, A second) const {
    m[i] = M(first);
    v[i] = M(second);
  }
};
struct MomentBytes {
  uint8_t* m;
  bf16* v;
  MomentBytes(const TensorView& first, const TensorView& second) : m(first.as<uint8_t>()), v(second.as<bf16>()) {}
  float first(int64_t i) const { return fp8::moment_of_byte(m[i], v[i]); }
  float second(int64_t i) const { return v[i]; }
  void keep(int64_t i, float first, float second) const {
    v[i] = second;
    m[i] = fp8::byte_of_moment(first, v[i]);
  }
};

/// Calls body(moments) for the types that those of an op have.
template <class A, class Body>
void with_moments(const KernelCall& call, const Body& body) {
  const TensorView &m = call.updates[1], &v = call.updates[2];
  if constexpr (std::is_same_v<A, float>) {
    if (m.dtype == Dtype::u8) return body(MomentBytes(m, v));
    if (m.dtype == Dtype::bf16) return body(Moments<float, bf16>(m, v));
  }
  body(Moments<A, A>(m, v));
}

/// updates: master p, m, v, [copy]. The copy is made of the master in any case.
template <class A>
void adamw(const KernelCall& call) {
  A* p = accumulator<A>(call.updates[0]);
  const int64_t count = call.updates[0].elements();
  if (!left_out(call)) {
    const Adamw<A> rule(call);
    with_moments<A>(call, [&](const auto& moments) {
      for (int64_t i = 0; i < count; ++i) {
        A m = moments.first(i), v = moments.second(i);
        rule.step(i, p[i], m, v);
        moments.keep(i, m, v);
      }
    });
  }
  if (call.op->attributes.integer_or("copy", 0) == 0) return;
  const Output<A> copy(call.updates[3]);
  std::copy_n(p, count, copy.at(0));
}

/// updates: the lower half of the master, m, v with the master's odd bit for a sign, the weight.
void adamw_split(const KernelCall& call) {
  if (left_out(call)) return;
  auto* low = call.updates[0].as<uint16_t>();
  bf16* w = call.updates[3].as<bf16>();
  const Adamw<float> rule(call);
  with_moments<float>(call, [&](const auto& moments) {
    for (int64_t i = 0; i < call.updates[0].elements(); ++i) {
      float m = moments.first(i), v = moments.second(i);
      float p = joined({w[i], low[i], std::signbit(v)}), size = std::abs(v);
      rule.step(i, p, m, size);
      const SplitFloat parts = split(p);
      w[i] = parts.nearest;
      low[i] = parts.low;
      moments.keep(i, m, parts.up_at_half ? -size : size);
    }
  });
}

/// in: clip, master. average += (1 − decay)·(master − average).
template <class A>
void average_master(const KernelCall& call) {
  if (left_out(call)) return;
  const A* master = call.in[1].as<const A>();
  A* average = accumulator<A>(call.updates[0]);
  const A share = static_cast<A>(1 - call.op->attributes.number("decay"));
  for (int64_t i = 0; i < call.updates[0].elements(); ++i) average[i] += share * (master[i] - average[i]);
}

}  // namespace

std::vector<KernelEntry> optimizer_kernels() {
  constexpr auto square = by_type<in0, grad_square_sum<float>, grad_square_sum<double>>;
  constexpr auto step = by_type<updates0, adamw<float>, adamw<double>>;
  constexpr auto average = by_type<updates0, average_master<float>, average_master<double>>;
  return {entry("grad_square_sum", square),
          entry("sum_parts", sum_parts),
          entry("grad_norm", grad_norm),
          entry("skip_outlier", skip_outlier),
          entry("adamw", step),
          entry("adamw_split", adamw_split),
          entry("average_master", average),
          entry("grad_square_sums", one_by_one<square>),
          entry("adamw_many", one_by_one<step>),
          entry("adamw_split_many", one_by_one<adamw_split>),
          entry("average_masters", one_by_one<average>)};
}

}  // namespace heddle::kernels::reference
