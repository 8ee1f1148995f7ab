// The activations of MLPs and their gradients. T rows, F width; gradients of biases are sums over rows, in
// increasing row, of the gradient before it is rounded.
#include <cmath>
#include <numbers>

#include "heddle/kernels/reference/operands.h"
#include "heddle/kernels/reference/scalars.h"

namespace heddle::kernels::reference {
namespace {

/// The normal distribution: Φ(z) and φ(z).
template <class A>
A normal_below(A z) {
  return A(0.5) * std::erfc(-z * static_cast<A>(1 / std::numbers::sqrt2));
}
template <class A>
A normal_density(A z) {
  return std::exp(A(-0.5) * z * z) * static_cast<A>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
}

/// z·Φ(z), or with `tanh` z·σ(2w) of w = √(2/π)·(z + 0.044715 z³), which is z·(1 + tanh w)/2.
template <class A>
A gelu_of(A z, bool tanh) {
  const A w = static_cast<A>(std::numbers::inv_sqrtpi * std::numbers::sqrt2) * (z + A(0.044715) * z * z * z);
  return z * (tanh ? sigmoid(2 * w) : normal_below(z));
}
template <class A>
A gelu_slope(A z, bool tanh) {
  if (!tanh) return normal_below(z) + z * normal_density(z);
  const A root = static_cast<A>(std::numbers::inv_sqrtpi * std::numbers::sqrt2);
  const A s = sigmoid(2 * root * (z + A(0.044715) * z * z * z));
  return s + z * s * (1 - s) * 2 * root * (1 + 3 * A(0.044715) * z * z);
}

/// (gate, up) = u + bias; a = silu(gate)·up.
template <class A>
void swiglu(const KernelCall& call) {
  const Input<A> u(call.in[0]), bias(operand(call.in, 1));
  const int64_t T = call.in[0].dim(0), F = call.in[0].dim(1) / 2;
  const Output<A> a_TF(call.out[0]);
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t f = 0; f < F; ++f) {
      const A gate = u[t * 2 * F + f] + (bias ? bias[f] : A(0));
      const A up = u[t * 2 * F + F + f] + (bias ? bias[F + f] : A(0));
      a_TF[t * F + f] = gate * sigmoid(gate) * up;
    }
  }
}

/// dgate = da·up·silu'(gate), dup = da·silu(gate); dbias = Σ_t du.
template <class A>
void swiglu_dgrad(const KernelCall& call) {
  const Input<A> da_TF(call.in[0]), u(call.in[1]), bias(operand(call.in, 2));
  const int64_t T = call.in[0].dim(0), F = call.in[0].dim(1);
  const Output<A> du(call.out[0]);
  std::vector<A> sum(static_cast<size_t>(2 * F), A(0));
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t f = 0; f < F; ++f) {
      const int64_t at_gate = t * 2 * F + f, at_up = at_gate + F;
      const A gate = u[at_gate] + (bias ? bias[f] : A(0));
      const A up = u[at_up] + (bias ? bias[F + f] : A(0));
      const A da = da_TF[t * F + f];
      du[at_gate] = da * up * silu_slope(gate);
      du[at_up] = da * (gate * sigmoid(gate));
      sum[f] += du[at_gate];
      sum[F + f] += du[at_up];
    }
  }
  if (!bias) return;
  const Output<A> dbias(call.out[1]);
  std::copy(sum.begin(), sum.end(), dbias.at(0));
}

/// Calls body(row, gate's place, g, w, whether g is gate, whether w is up) for each element of
///   (gate, up) = u + bias of the row's expert; g = min(gate, l), w = up within ±l; a = g·σ(αg)·(w + 1)
template <class A, class Body>
void for_each_clamped(const KernelCall& call, size_t u_at, Body body) {
  const Input<A> u(call.in[u_at]), bias_E2F(operand(call.in, u_at + 1)), copies_C2F(operand(call.in, u_at + 3));
  const int64_t own = bias_E2F ? call.in[u_at + 1].dim(0) : 0;
  const TensorView offsets = operand(call.in, u_at + 2);
  const int64_t R = call.in[u_at].dim(0), F = call.in[u_at].dim(1) / 2;
  const A limit = static_cast<A>(call.op->attributes.number("limit"));
  int64_t e = 0;
  for (int64_t r = 0; r < R; ++r) {
    while (offsets && offsets.as<const int32_t>()[e + 1] <= r) ++e;
    const auto bias = [&](int64_t column) {
      if (!bias_E2F) return A(0);
      return e < own ? bias_E2F[e * 2 * F + column] : copies_C2F[(e - own) * 2 * F + column];
    };
    for (int64_t f = 0; f < F; ++f) {
      const int64_t at = r * 2 * F + f;
      const A gate = u[at] + bias(f), up = u[at + F] + bias(F + f);
      body(r * F + f, at, gate > limit ? limit : gate,
           up > limit    ? limit
           : up < -limit ? -limit
                         : up,
           !(gate > limit), !(up > limit || up < -limit));
    }
  }
}

template <class A>
void clamped_swiglu(const KernelCall& call) {
  const A alpha = static_cast<A>(call.op->attributes.number("alpha"));
  const Output<A> a_RF(call.out[0]);
  for_each_clamped<A>(
      call, 0, [&](int64_t at, int64_t, A g, A w, bool, bool) { a_RF[at] = g * sigmoid(alpha * g) * (w + A(1)); });
}

/// dgate = da·(w + 1)·s·(1 + αg·(1 − s)) with s = σ(αg) where g is gate, else 0; dup = da·g·s where w is up, else
/// 0.
template <class A>
void clamped_swiglu_dgrad(const KernelCall& call) {
  const A alpha = static_cast<A>(call.op->attributes.number("alpha"));
  const Input<A> da_RF(call.in[0]);
  const int64_t F = call.in[0].dim(1);
  const Output<A> du(call.out[0]);
  for_each_clamped<A>(call, 1, [&](int64_t at, int64_t at_gate, A g, A w, bool is_gate, bool is_up) {
    const A s = sigmoid(alpha * g);
    du[at_gate] = is_gate ? da_RF[at] * (w + A(1)) * s * (A(1) + alpha * g * (A(1) - s)) : A(0);
    du[at_gate + F] = is_up ? da_RF[at] * g * s : A(0);
  });
}

template <class A>
void silu(const KernelCall& call) {
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) y[i] = x[i] * sigmoid(x[i]);
}

template <class A>
void silu_dgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]), x(call.in[1]);
  const Output<A> dx(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) dx[i] = dy[i] * silu_slope(x[i]);
}

template <class A>
void multiply(const KernelCall& call) {
  const Input<A> a(call.in[0]), b(call.in[1]);
  const Output<A> y(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) y[i] = a[i] * b[i];
}

template <class A>
void multiply_dgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]), a(call.in[1]), b(call.in[2]);
  const Output<A> da(call.out[0]), db(call.out[1]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) {
    da[i] = dy[i] * b[i];
    db[i] = dy[i] * a[i];
  }
}

/// z = x + bias, y = gelu(z).
template <class A>
void gelu(const KernelCall& call) {
  const Input<A> x_TF(call.in[0]), bias_F(operand(call.in, 1));
  const int64_t T = call.in[0].dim(0), F = call.in[0].dim(1);
  const bool tanh = call.op->attributes.integer_or("tanh", 0) != 0;
  const Output<A> y_TF(call.out[0]);
  for (int64_t i = 0; i < T * F; ++i) y_TF[i] = gelu_of(x_TF[i] + (bias_F ? bias_F[i % F] : A(0)), tanh);
}

/// dx = dy·gelu'(z), where gelu' is Φ(z) + z·φ(z) but with `tanh`; dbias = Σ_t dx.
template <class A>
void gelu_dgrad(const KernelCall& call) {
  const Input<A> dy_TF(call.in[0]), x_TF(call.in[1]), bias_F(operand(call.in, 2));
  const int64_t T = call.in[0].dim(0), F = call.in[0].dim(1);
  const bool tanh = call.op->attributes.integer_or("tanh", 0) != 0;
  const Output<A> dx_TF(call.out[0]);
  std::vector<A> sum_F(static_cast<size_t>(F), A(0));
  for (int64_t i = 0; i < T * F; ++i) {
    const A z = x_TF[i] + (bias_F ? bias_F[i % F] : A(0));
    dx_TF[i] = dy_TF[i] * gelu_slope(z, tanh);
    sum_F[i % F] += dx_TF[i];
  }
  if (!bias_F) return;
  const Output<A> dbias_F(call.out[1]);
  std::copy(sum_F.begin(), sum_F.end(), dbias_F.at(0));
}

/// Each of the gate's columns is of a run of x's: body(place of x, place of the gate).
template <class Body>
void for_each_gated(const TensorView& x, const TensorView& gate, Body body) {
  const int64_t run = x.dim(1) / gate.dim(1);
  for (int64_t i = 0; i < x.elements(); ++i) body(i, i / run);
}

/// The factor that a gate is, and its slope: σ, or with `softplus` ln(1 + e^g), whose slope is σ.
template <class A>
struct GateValue {
  A value, slope;
  GateValue(const KernelCall& call, A gate) : value(sigmoid(gate)), slope(value * (A(1) - value)) {
    if (call.op->attributes.integer_or("softplus", 0) == 0) return;
    slope = value;
    value = std::max(gate, A(0)) + std::log1p(std::exp(-std::abs(gate)));
  }
};

/// y = x·σ(gate).
template <class A>
void sigmoid_gate(const KernelCall& call) {
  const Input<A> x(call.in[0]), gate(call.in[1]);
  const Output<A> y(call.out[0]);
  for_each_gated(call.in[0], call.in[1],
                 [&](int64_t i, int64_t j) { y[i] = x[i] * GateValue<A>(call, gate[j]).value; });
}

/// dx = dy·σ, dgate = Σ_run dy·x·σ', in increasing column.
template <class A>
void sigmoid_gate_dgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]), x(call.in[1]), gate(call.in[2]);
  const Output<A> dx(call.out[0]), dgate(call.out[1]);
  dgate.fill(A(0));
  for_each_gated(call.in[1], call.in[2], [&](int64_t i, int64_t j) {
    const GateValue<A> s(call, gate[j]);
    dx[i] = dy[i] * s.value;
    dgate[j] += dy[i] * x[i] * s.slope;
  });
}

/// y = c·tanh(x ÷ c).
template <class A>
void soft_cap(const KernelCall& call) {
  const A cap = static_cast<A>(call.op->attributes.number("cap"));
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) y[i] = cap * std::tanh(x[i] / cap);
}

/// dx = dy·(1 − tanh²(x ÷ c)).
template <class A>
void soft_cap_dgrad(const KernelCall& call) {
  const A cap = static_cast<A>(call.op->attributes.number("cap"));
  const Input<A> dy(call.in[0]), x(call.in[1]);
  const Output<A> dx(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) {
    const A t = std::tanh(x[i] / cap);
    dx[i] = dy[i] * (A(1) - t) * (A(1) + t);
  }
}

/// y = x up to the limit, and with `below` from −limit on.
template <class A>
void clip(const KernelCall& call) {
  const A limit = static_cast<A>(call.op->attributes.number("limit"));
  const bool below = call.op->attributes.integer("below") != 0;
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i)
    y[i] = x[i] > limit ? limit : below && x[i] < -limit ? -limit : x[i];
}

/// dx = dy where x was not cut, else 0.
template <class A>
void clip_dgrad(const KernelCall& call) {
  const A limit = static_cast<A>(call.op->attributes.number("limit"));
  const bool below = call.op->attributes.integer("below") != 0;
  const Input<A> dy(call.in[0]), x(call.in[1]);
  const Output<A> dx(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i)
    dx[i] = x[i] > limit || (below && x[i] < -limit) ? A(0) : dy[i];
}

/// y = max(x, 0)².
template <class A>
void squared_relu(const KernelCall& call) {
  const Input<A> x(call.in[0]);
  const Output<A> y(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) y[i] = std::max(x[i], A(0)) * std::max(x[i], A(0));
}

/// dx = dy·2·max(x, 0).
template <class A>
void squared_relu_dgrad(const KernelCall& call) {
  const Input<A> dy(call.in[0]), x(call.in[1]);
  const Output<A> dx(call.out[0]);
  for (int64_t i = 0; i < call.in[0].elements(); ++i) dx[i] = dy[i] * A(2) * std::max(x[i], A(0));
}

}  // namespace

std::vector<KernelEntry> mlp_kernels() {
  return {entry("swiglu", by_type<in0, swiglu<float>, swiglu<double>>),
          entry("swiglu_dgrad", by_type<in0, swiglu_dgrad<float>, swiglu_dgrad<double>>),
          entry("clamped_swiglu", by_type<in0, clamped_swiglu<float>, clamped_swiglu<double>>),
          entry("clamped_swiglu_dgrad", by_type<in0, clamped_swiglu_dgrad<float>, clamped_swiglu_dgrad<double>>),
          entry("silu", by_type<in0, silu<float>, silu<double>>),
          entry("silu_dgrad", by_type<in0, silu_dgrad<float>, silu_dgrad<double>>),
          entry("multiply", by_type<in0, multiply<float>, multiply<double>>),
          entry("multiply_dgrad", by_type<in0, multiply_dgrad<float>, multiply_dgrad<double>>),
          entry("gelu", by_type<in0, gelu<float>, gelu<double>>),
          entry("gelu_dgrad", by_type<in0, gelu_dgrad<float>, gelu_dgrad<double>>),
          entry("sigmoid_gate", by_type<in0, sigmoid_gate<float>, sigmoid_gate<double>>),
          entry("sigmoid_gate_dgrad", by_type<in0, sigmoid_gate_dgrad<float>, sigmoid_gate_dgrad<double>>),
          entry("soft_cap", by_type<in0, soft_cap<float>, soft_cap<double>>),
          entry("soft_cap_dgrad", by_type<in0, soft_cap_dgrad<float>, soft_cap_dgrad<double>>),
          entry("clip", by_type<in0, clip<float>, clip<double>>),
          entry("clip_dgrad", by_type<in0, clip_dgrad<float>, clip_dgrad<double>>),
          entry("squared_relu", by_type<in0, squared_relu<float>, squared_relu<double>>),
          entry("squared_relu_dgrad", by_type<in0, squared_relu_dgrad<float>, squared_relu_dgrad<double>>)};
}

}  // namespace heddle::kernels::reference
