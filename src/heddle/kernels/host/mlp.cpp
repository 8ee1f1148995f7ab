// The activations of MLPs and their gradients, and biases, each in one pass. T rows, F width.
//   add_bias: x + bias;
//   swiglu: (gate, up) = u + bias, a = silu(gate)·up;  gelu: z = x + bias, y = z·Φ(z), or with `tanh`
//   z·σ(2w) of w = √(2/π)·(z + 0.044715 z³);  silu: x·σ(x)
// Gradients of biases are sums over rows of the gradient before it is rounded, by blocks (row_pieces.h).
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/mlp.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: these are compiled for each target.
#include "heddle/kernels/host/by_type-inl.h"
#include "heddle/kernels/host/column_sums-inl.h"
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

/// d silu(x) ÷ dx = σ·(1 + x·(1 − σ)).
HWY_INLINE V silu_slope(V x, V s) {
  const V one = set(1.0f);
  return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
}

/// The normal distribution: below = Φ(z), bell = e^(−z²/2).
struct Normal {
  V below, bell;
};
/// For a = |z| and t = 1/(1 + 0.31a): Φ(−a) = e^(−a²/2)·t·P(t). P was fitted by interpolation in Chebyshev's points
/// on 0 ≤ a ≤ 13; its relative error is 2e-7, also where Φ is tiny.
HWY_INLINE Normal normal(V z) {
  const V a = at_most(set(14.0f), hn::Abs(z));
  const V t = reciprocal(hn::MulAdd(a, set(0.31f), set(1.0f)));
  V p = hn::MulAdd(set(3.6131346e-2f), t, set(-1.42878284e-1f));
  p = hn::MulAdd(p, t, set(1.57378017e-1f));
  p = hn::MulAdd(p, t, set(-1.71309440e-2f));
  p = hn::MulAdd(p, t, set(1.11335545e-1f));
  p = hn::MulAdd(p, t, set(1.07389140e-1f));
  p = hn::MulAdd(p, t, set(1.24122378e-1f));
  p = hn::MulAdd(p, t, set(1.23652881e-1f));
  const V bell = exp_up_to_88(hn::Mul(hn::Mul(a, a), set(-0.5f)));
  const V tail = hn::Mul(hn::Mul(bell, t), p);
  return {hn::IfThenElse(hn::Lt(z, zero()), tail, hn::Sub(set(1.0f), tail)), bell};
}

/// The factor of z in GELU, and its slope; by the error function, or by σ(2w).
struct Exact {
  static HWY_INLINE V part(V z) { return normal(z).below; }
  static HWY_INLINE V slope(V z) {
    constexpr float kInverseRootTwoPi = 0.398942280f;
    const Normal at = normal(z);
    return hn::MulAdd(hn::Mul(z, set(kInverseRootTwoPi)), at.bell, at.below);
  }
};
struct Tanh {
  static constexpr float kTwiceRoot = 1.59576912f, kCube = 0.044715f;  // 2·√(2/π)
  /// Further off σ is 0 or 1, and a cube would leave the range of fp32.
  static HWY_INLINE V bounded(V z) { return at_least(set(-64.0f), at_most(set(64.0f), z)); }
  static HWY_INLINE V part(V z) {
    z = bounded(z);
    const V square = hn::Mul(z, z);
    return sigmoid(hn::Mul(hn::Mul(z, set(kTwiceRoot)), hn::MulAdd(square, set(kCube), set(1.0f))));
  }
  static HWY_INLINE V slope(V z) {
    z = bounded(z);
    const V s = part(z), one = set(1.0f);
    const V inner = hn::Mul(set(kTwiceRoot), hn::MulAdd(hn::Mul(z, z), set(3 * kCube), one));
    return hn::MulAdd(hn::Mul(hn::Mul(z, s), hn::Sub(one, s)), inner, s);
  }
};
/// The bias at column f, or nothing.
struct Bias {
  const float* values_F;
  template <class Lanes>
  HWY_INLINE V plus(V x, int64_t f, Lanes lanes) const {
    return values_F ? hn::Add(x, load(values_F + f, lanes)) : x;
  }
};
Bias bias_of(const KernelCall& call, size_t i) {
  return {i < call.in.size() ? call.in[i].as<const float>() : nullptr};
}

template <class X>
void add_bias(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.in[0].columns();
  const Bias bias = bias_of(call, 1);
  for (int64_t t = begin; t < end; ++t) {
    const X* x_F = call.in[0].as<const X>() + t * F;
    X* y_F = call.out[0].as<X>() + t * F;
    sweep(F, [&](int64_t f, auto lanes, auto)
                 HEDDLE_BODY { store(bias.plus(load(x_F + f, lanes), f, lanes), y_F + f, lanes); });
  }
}

template <class X>
void add_bias_wgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.in[0].columns();
  for (int64_t t = begin; t < end; ++t) {
    const X* dy_F = call.in[0].as<const X>() + t * F;
    float* sum_F = partial_sum(call.scratch, t / kRowsPerPartial, F);
    const bool first = t % kRowsPerPartial == 0;
    sweep(F, [&](int64_t f, auto lanes, auto) HEDDLE_BODY {
      const V dy = load(dy_F + f, lanes);
      store(first ? dy : hn::Add(load(sum_F + f, lanes), dy), sum_F + f, lanes);
    });
  }
}

template <class X>
void swiglu(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.out[0].columns();
  const Bias bias = bias_of(call, 1);
  for (int64_t t = begin; t < end; ++t) {
    const X *gate_F = call.in[0].as<const X>() + t * 2 * F, *up_F = gate_F + F;
    X* a_F = call.out[0].as<X>() + t * F;
    sweep(F, [&](int64_t f, auto lanes, auto nth) HEDDLE_BODY {
      ask_for(gate_F + 4 * F + f, nth);
      ask_for(up_F + 4 * F + f, nth);
      const V gate = bias.plus(load(gate_F + f, lanes), f, lanes);
      const V up = bias.plus(load(up_F + f, lanes), F + f, lanes);
      store(hn::Mul(hn::Mul(gate, sigmoid_for<X>(gate)), up), a_F + f, lanes);
    });
  }
}

/// dgate = da·up·silu'(gate), dup = da·silu(gate). A gradient of the bias is summed into dbias when it is there.
template <class X>
HWY_INLINE void swiglu_dgrad_row(const X* da_F, const X* gate_F, int64_t F, Bias bias, X* dgate_F, bool first,
                                 float* dbias) {
  const X* up_F = gate_F + F;
  sweep(F, [&](int64_t f, auto lanes, auto nth) HEDDLE_BODY {
    ask_for(gate_F + 4 * F + f, nth);
    ask_for(up_F + 4 * F + f, nth);
    ask_for(da_F + 2 * F + f, nth);
    const V gate = bias.plus(load(gate_F + f, lanes), f, lanes);
    const V up = bias.plus(load(up_F + f, lanes), F + f, lanes);
    const V da = load(da_F + f, lanes), s = sigmoid_for<X>(gate);
    const V dgate = hn::Mul(hn::Mul(da, up), silu_slope(gate, s));
    const V dup = hn::Mul(da, hn::Mul(gate, s));
    store(dgate, dgate_F + f, lanes);
    store(dup, dgate_F + F + f, lanes);
    if (dbias) {
      float *to_gate = dbias + f, *to_up = dbias + F + f;
      store(first ? dgate : hn::Add(load(to_gate, lanes), dgate), to_gate, lanes);
      store(first ? dup : hn::Add(load(to_up, lanes), dup), to_up, lanes);
    }
  });
}

template <class X>
void swiglu_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.in[0].columns();
  const Bias bias = bias_of(call, 2);
  for (int64_t t = begin; t < end; ++t) {
    float* dbias = bias.values_F ? partial_sum(call.scratch, t / kRowsPerPartial, 2 * F) : nullptr;
    swiglu_dgrad_row(call.in[0].as<const X>() + t * F, call.in[1].as<const X>() + t * 2 * F, F, bias,
                     call.out[0].as<X>() + t * 2 * F, t % kRowsPerPartial == 0, dbias);
  }
}

template <class X, class Kind>
void gelu(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.out[0].columns();
  const Bias bias = bias_of(call, 1);
  for (int64_t t = begin; t < end; ++t) {
    const X* x_F = call.in[0].as<const X>() + t * F;
    X* y_F = call.out[0].as<X>() + t * F;
    sweep(F, [&](int64_t f, auto lanes, auto) HEDDLE_BODY {
      const V z = bias.plus(load(x_F + f, lanes), f, lanes);
      store(hn::Mul(z, Kind::part(z)), y_F + f, lanes);
    });
  }
}

/// dx = dy·gelu'(z).
template <class X, class Kind>
void gelu_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.out[0].columns();
  const Bias bias = bias_of(call, 2);
  for (int64_t t = begin; t < end; ++t) {
    const X *dy_F = call.in[0].as<const X>() + t * F, *x_F = call.in[1].as<const X>() + t * F;
    X* dx_F = call.out[0].as<X>() + t * F;
    float* dbias_F = bias.values_F ? partial_sum(call.scratch, t / kRowsPerPartial, F) : nullptr;
    const bool first = t % kRowsPerPartial == 0;
    sweep(F, [&](int64_t f, auto lanes, auto) HEDDLE_BODY {
      const V z = bias.plus(load(x_F + f, lanes), f, lanes);
      const V dx = hn::Mul(load(dy_F + f, lanes), Kind::slope(z));
      store(dx, dx_F + f, lanes);
      if (dbias_F) store(first ? dx : hn::Add(load(dbias_F + f, lanes), dx), dbias_F + f, lanes);
    });
  }
}

// The plain ones see a tensor as one long row.

template <class X>
void silu(const KernelCall& call, int64_t begin, int64_t end) {
  const X* x = call.in[0].as<const X>() + begin;
  X* y = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V v = load(x + i, lanes);
    store(hn::Mul(v, sigmoid_for<X>(v)), y + i, lanes);
  });
}

template <class X>
void silu_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const X *dy = call.in[0].as<const X>() + begin, *x = call.in[1].as<const X>() + begin;
  X* dx = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V v = load(x + i, lanes);
    store(hn::Mul(load(dy + i, lanes), silu_slope(v, sigmoid_for<X>(v))), dx + i, lanes);
  });
}

template <class X>
void multiply(const KernelCall& call, int64_t begin, int64_t end) {
  const X *a = call.in[0].as<const X>() + begin, *b = call.in[1].as<const X>() + begin;
  X* y = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto)
                         HEDDLE_BODY { store(hn::Mul(load(a + i, lanes), load(b + i, lanes)), y + i, lanes); });
}

template <class X>
void multiply_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const X* dy = call.in[0].as<const X>() + begin;
  const X *a = call.in[1].as<const X>() + begin, *b = call.in[2].as<const X>() + begin;
  X *da = call.out[0].as<X>() + begin, *db = call.out[1].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V dy_i = load(dy + i, lanes);
    store(hn::Mul(dy_i, load(b + i, lanes)), da + i, lanes);
    store(hn::Mul(dy_i, load(a + i, lanes)), db + i, lanes);
  });
}

bool is_tanh(const KernelCall& call) { return call.op->attributes.integer_or("tanh", 0) != 0; }
}  // namespace

void AddBiasRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<add_bias<bf16>, add_bias<float>>(call, begin, end);
}
void AddBiasWgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<add_bias_wgrad<bf16>, add_bias_wgrad<float>>(call, begin, end);
}
void AddColumns(const float* sum, int64_t columns, float* to) {
  sweep(columns, [&](int64_t f, auto lanes, auto)
                     HEDDLE_BODY { store(hn::Add(load(to + f, lanes), load(sum + f, lanes)), to + f, lanes); });
}
void SwigluRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<swiglu<bf16>, swiglu<float>>(call, begin, end);
}
void SwigluDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<swiglu_dgrad<bf16>, swiglu_dgrad<float>>(call, begin, end);
}
void GeluRows(const KernelCall& call, int64_t begin, int64_t end) {
  is_tanh(call) ? by_type<gelu<bf16, Tanh>, gelu<float, Tanh>>(call, begin, end)
                : by_type<gelu<bf16, Exact>, gelu<float, Exact>>(call, begin, end);
}
void GeluDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  is_tanh(call) ? by_type<gelu_dgrad<bf16, Tanh>, gelu_dgrad<float, Tanh>>(call, begin, end)
                : by_type<gelu_dgrad<bf16, Exact>, gelu_dgrad<float, Exact>>(call, begin, end);
}
void Silu(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<silu<bf16>, silu<float>>(call, begin, end);
}
void SiluDgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<silu_dgrad<bf16>, silu_dgrad<float>>(call, begin, end);
}
void Multiply(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<multiply<bf16>, multiply<float>>(call, begin, end);
}
void MultiplyDgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<multiply_dgrad<bf16>, multiply_dgrad<float>>(call, begin, end);
}
void BiasAddPartials(const std::byte* scratch, int64_t partials, int64_t columns, float* sum) {
  add_partials(scratch, partials, columns, sum);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(AddBiasRows);
HWY_EXPORT(AddBiasWgradRows);
HWY_EXPORT(AddColumns);
HWY_EXPORT(SwigluRows);
HWY_EXPORT(SwigluDgradRows);
HWY_EXPORT(GeluRows);
HWY_EXPORT(GeluDgradRows);
HWY_EXPORT(Silu);
HWY_EXPORT(SiluDgrad);
HWY_EXPORT(Multiply);
HWY_EXPORT(MultiplyDgrad);
HWY_EXPORT(BiasAddPartials);

void silu(const KernelCall& call) { over_elements(call, 2, HWY_DYNAMIC_DISPATCH(Silu)); }
void silu_dgrad(const KernelCall& call) { over_elements(call, 3, HWY_DYNAMIC_DISPATCH(SiluDgrad)); }
void multiply(const KernelCall& call) { over_elements(call, 3, HWY_DYNAMIC_DISPATCH(Multiply)); }
void multiply_dgrad(const KernelCall& call) { over_elements(call, 5, HWY_DYNAMIC_DISPATCH(MultiplyDgrad)); }

void forward(const KernelCall& call, RowKernel piece) {
  over_rows(call, call.in[0].rows(), (call.in[0].columns() + call.out[0].columns()) * size_of(call.in[0].dtype),
            piece);
}
void add_bias(const KernelCall& call) { forward(call, HWY_DYNAMIC_DISPATCH(AddBiasRows)); }
void swiglu(const KernelCall& call) { forward(call, HWY_DYNAMIC_DISPATCH(SwigluRows)); }
void gelu(const KernelCall& call) { forward(call, HWY_DYNAMIC_DISPATCH(GeluRows)); }

void backward(const KernelCall& call, RowKernel piece) {
  const int64_t T = call.in[1].rows(), columns = call.in[1].columns();
  const bool bias = call.in.size() > 2 && call.in[2];
  over_rows(call, T, (call.in[0].columns() + 2 * columns) * size_of(call.in[0].dtype), piece,
            bias ? kRowsPerPartial : 1);
  if (bias) {
    HWY_DYNAMIC_DISPATCH(BiasAddPartials)(call.scratch, partial_count(T), columns, call.out[1].as<float>());
  }
}
void swiglu_dgrad(const KernelCall& call) { backward(call, HWY_DYNAMIC_DISPATCH(SwigluDgradRows)); }
void gelu_dgrad(const KernelCall& call) { backward(call, HWY_DYNAMIC_DISPATCH(GeluDgradRows)); }

/// acc += the sum of the blocks' sums, which stands behind them.
void add_bias_wgrad(const KernelCall& call) {
  const int64_t T = call.in[0].rows(), F = call.in[0].columns(), partials = partial_count(T);
  const RowKernel piece = HWY_DYNAMIC_DISPATCH(AddBiasWgradRows);
  over_rows(call, T, F * size_of(call.in[0].dtype), piece, kRowsPerPartial);
  auto* acc = call.updates[0].as<float>();
  float* sum = call.overwrite ? acc : partial_sum(call.scratch, partials, F);
  HWY_DYNAMIC_DISPATCH(BiasAddPartials)(call.scratch, partials, F, sum);
  if (!call.overwrite) HWY_DYNAMIC_DISPATCH(AddColumns)(sum, F, acc);
}
int64_t add_bias_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  const int64_t columns = listing.value(op.updates[0]).shape[0].count;
  const int64_t count = listing.elements(op.in[0], rows) / std::max<int64_t>(1, columns);
  return partial_sums_bytes(count, columns) + partial_stride(columns) * 4;
}
Support sums_in_floats(const ir::Listing& listing, const ir::Op& op) {
  return listing.value(op.updates[0]).dtype == Dtype::f32 ? takes<"x">(listing, op)
                                                          : Support::no("the accumulator is not f32");
}

int64_t bias_scratch(const ir::Listing& listing, const ir::Op& op, const ir::RowCounts& rows) {
  if (op.in.size() <= 2 || op.in[2] == ir::none) return 0;
  const int64_t columns = listing.value(op.in[2]).shape[0].count;
  return partial_sums_bytes(listing.elements(op.in[1], rows) / std::max<int64_t>(1, columns), columns);
}

}  // namespace

std::vector<KernelEntry> mlp_kernels() {
  return {{"add_bias", "host", "highway", takes<"xa">, nullptr, add_bias},
          {"add_bias_wgrad", "host", "highway", sums_in_floats, add_bias_scratch, add_bias_wgrad},
          {"swiglu", "host", "highway", takes<"xa">, nullptr, swiglu},
          {"swiglu_dgrad", "host", "highway", takes<"xxa">, bias_scratch, swiglu_dgrad},
          {"silu", "host", "highway", takes<"x">, nullptr, silu},
          {"silu_dgrad", "host", "highway", takes<"xx">, nullptr, silu_dgrad},
          {"multiply", "host", "highway", takes<"xx">, nullptr, multiply},
          {"multiply_dgrad", "host", "highway", takes<"xxx">, nullptr, multiply_dgrad},
          {"gelu", "host", "highway", takes<"xa">, nullptr, gelu},
          {"gelu_dgrad", "host", "highway", takes<"xxa">, bias_scratch, gelu_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
