// Gates by a sigmoid, soft caps and factors, each in one pass. T rows.
//   sigmoid_gate: x·σ(gate), or ln(1 + e^gate) for σ, each of the gate's columns for a run of x's;  soft_cap:
//   c·tanh(x ÷ c);  scale: factor·x;  scale_by: the same by an operand, or by one of several for each number; clip:
//   x within limits; squared_relu: max(x, 0)²
#include <algorithm>
#include <limits>
#include <vector>

#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/gates.cpp"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/by_type-inl.h"
#include "heddle/kernels/host/softplus-inl.h"
#include "heddle/kernels/host/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

bool is_softplus(const KernelCall& call) { return call.op->attributes.integer_or("softplus", 0) != 0; }

/// The factor that a gate of the type X is: σ, or ln(1 + e^g).
template <class X, bool softplus_>
HWY_INLINE V gate_of(V gate) {
  if constexpr (softplus_) return softplus(gate);
  return sigmoid_for<X>(gate);
}
/// The factor's slope; `s` is the factor.
template <class X, bool softplus_>
HWY_INLINE V gate_slope(V gate, V s) {
  if constexpr (softplus_) return sigmoid_for<X>(gate);
  return hn::Mul(s, hn::Sub(set(1.0f), s));
}

/// With a gate a number it works by vectors of gates; else gate by gate, by vectors of the gate's run.
template <class X, bool softplus_>
void gate_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t columns = call.in[0].columns(), gates = call.in[1].columns(), run = columns / gates;
  for (int64_t t = begin; t < end; ++t) {
    const X *x = call.in[0].as<const X>() + t * columns, *gate = call.in[1].as<const X>() + t * gates;
    X* y = call.out[0].as<X>() + t * columns;
    if (run == 1) {
      sweep(gates, [&](int64_t j, auto lanes, auto) HEDDLE_BODY {
        store(hn::Mul(load(x + j, lanes), gate_of<X, softplus_>(load(gate + j, lanes))), y + j, lanes);
      });
      continue;
    }
    for (int64_t j = 0; j < gates; ++j) {
      const V s = gate_of<float, softplus_>(set(static_cast<float>(gate[j])));
      sweep(run, [&](int64_t i, auto lanes, auto)
                     HEDDLE_BODY { store(hn::Mul(load(x + j * run + i, lanes), s), y + j * run + i, lanes); });
    }
  }
}
template <class X>
void sigmoid_gate(const KernelCall& call, int64_t begin, int64_t end) {
  is_softplus(call) ? gate_rows<X, true>(call, begin, end) : gate_rows<X, false>(call, begin, end);
}

/// dx = dy·s, dgate = Σ_run dy·x·s' of the gate's s.
template <class X, bool softplus_>
void gate_dgrad_rows(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t columns = call.in[1].columns(), gates = call.in[2].columns(), run = columns / gates;
  for (int64_t t = begin; t < end; ++t) {
    const X *dy = call.in[0].as<const X>() + t * columns, *x = call.in[1].as<const X>() + t * columns;
    const X* gate = call.in[2].as<const X>() + t * gates;
    X *dx = call.out[0].as<X>() + t * columns, *dgate = call.out[1].as<X>() + t * gates;
    if (run == 1) {
      sweep(gates, [&](int64_t j, auto lanes, auto) HEDDLE_BODY {
        const V g = load(gate + j, lanes), s = gate_of<X, softplus_>(g), d = load(dy + j, lanes);
        const V slope = gate_slope<X, softplus_>(g, s);
        store(hn::Mul(d, s), dx + j, lanes);
        store(hn::Mul(hn::Mul(d, load(x + j, lanes)), slope), dgate + j, lanes);
      });
      continue;
    }
    for (int64_t j = 0; j < gates; ++j) {
      const V g = set(static_cast<float>(gate[j])), s = gate_of<float, softplus_>(g);
      Sum sum;
      sweep(run, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
        const V d = load(dy + j * run + i, lanes);
        sum.add_product(d, load(x + j * run + i, lanes), nth);
        store(hn::Mul(d, s), dx + j * run + i, lanes);
      });
      const float of_gate = hn::GetLane(s);
      dgate[j] = X(softplus_ ? sum.total() * hn::GetLane(gate_slope<float, softplus_>(g, s))
                             : sum.total() * of_gate * (1.0f - of_gate));
    }
  }
}
template <class X>
void sigmoid_gate_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  is_softplus(call) ? gate_dgrad_rows<X, true>(call, begin, end) : gate_dgrad_rows<X, false>(call, begin, end);
}

template <class X>
void soft_cap(const KernelCall& call, int64_t begin, int64_t end) {
  const auto cap = static_cast<float>(call.op->attributes.number("cap"));
  const X* x = call.in[0].as<const X>() + begin;
  X* y = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    store(hn::Mul(set(cap), tanh_of(hn::Div(load(x + i, lanes), set(cap)))), y + i, lanes);
  });
}

/// dx = dy·(1 − tanh²(x ÷ c)).
template <class X>
void soft_cap_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const auto cap = static_cast<float>(call.op->attributes.number("cap"));
  const X *dy = call.in[0].as<const X>() + begin, *x = call.in[1].as<const X>() + begin;
  X* dx = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V bent = tanh_of(hn::Div(load(x + i, lanes), set(cap))), one = set(1.0f);
    store(hn::Mul(hn::Mul(load(dy + i, lanes), hn::Sub(one, bent)), hn::Add(one, bent)), dx + i, lanes);
  });
}

/// The limits of `clip`, of which the lower may be none.
struct Limits {
  V high, low;
  explicit Limits(const KernelCall& call)
      : high(set(static_cast<float>(call.op->attributes.number("limit")))),
        low(call.op->attributes.integer("below") != 0 ? hn::Neg(high)
                                                      : set(-std::numeric_limits<float>::infinity())) {}
};

template <class X>
void clip(const KernelCall& call, int64_t begin, int64_t end) {
  const Limits limits(call);
  const X* x = call.in[0].as<const X>() + begin;
  X* y = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    store(at_least(limits.low, at_most(limits.high, load(x + i, lanes))), y + i, lanes);
  });
}

/// dx = dy where x was not cut, else 0.
template <class X>
void clip_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const Limits limits(call);
  const X *dy = call.in[0].as<const X>() + begin, *x = call.in[1].as<const X>() + begin;
  X* dx = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V at = load(x + i, lanes);
    const auto cut = hn::Or(hn::Gt(at, limits.high), hn::Lt(at, limits.low));
    store(hn::IfThenElse(cut, set(0.0f), load(dy + i, lanes)), dx + i, lanes);
  });
}

/// max(x, 0)².
template <class X>
void squared_relu(const KernelCall& call, int64_t begin, int64_t end) {
  const X* x = call.in[0].as<const X>() + begin;
  X* y = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V part = at_least(set(0.0f), load(x + i, lanes));
    store(hn::Mul(part, part), y + i, lanes);
  });
}

/// dx = dy·2·max(x, 0).
template <class X>
void squared_relu_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const X *dy = call.in[0].as<const X>() + begin, *x = call.in[1].as<const X>() + begin;
  X* dx = call.out[0].as<X>() + begin;
  sweep(end - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V part = at_least(set(0.0f), load(x + i, lanes));
    store(hn::Mul(hn::Mul(load(dy + i, lanes), set(2.0f)), part), dx + i, lanes);
  });
}

template <class X>
void scale_by(const KernelCall& call, int64_t begin, int64_t end) {
  const auto* s = call.in[1].as<const float>();
  const X* x = call.in[0].as<const X>();
  X* y = call.out[0].as<X>();
  if (call.in.size() > 2 && call.in[2]) {
    const auto* index = call.in[2].as<const int32_t>();
    for (int64_t i = begin; i < end; ++i) y[i] = X(s[index[i]] * static_cast<float>(x[i]));
    return;
  }
  const int64_t run = call.in[0].elements() / std::max<int64_t>(1, call.in[1].elements());  // a row, or all
  while (begin < end) {
    const V factor = set(s[begin / run]);
    const int64_t stop = std::min(end, (begin / run + 1) * run);
    sweep(stop - begin, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      store(hn::Mul(factor, load(x + begin + i, lanes)), y + begin + i, lanes);
    });
    begin = stop;
  }
}

template <class X>
void scale(const KernelCall& call, int64_t begin, int64_t end) {
  const V factor = set(static_cast<float>(call.op->attributes.number("factor")));
  const X* x = call.in[0].as<const X>() + begin;
  X* y = call.out[0].as<X>() + begin;
  sweep(end - begin,
        [&](int64_t i, auto lanes, auto) HEDDLE_BODY { store(hn::Mul(factor, load(x + i, lanes)), y + i, lanes); });
}
}  // namespace

void ScaleBy(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<scale_by<bf16>, scale_by<float>>(call, begin, end);
}
void Scale(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<scale<bf16>, scale<float>>(call, begin, end);
}
void SigmoidGateRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<sigmoid_gate<bf16>, sigmoid_gate<float>>(call, begin, end);
}
void SigmoidGateDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<sigmoid_gate_dgrad<bf16>, sigmoid_gate_dgrad<float>>(call, begin, end);
}
void SoftCap(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<soft_cap<bf16>, soft_cap<float>>(call, begin, end);
}
void SoftCapDgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<soft_cap_dgrad<bf16>, soft_cap_dgrad<float>>(call, begin, end);
}
void Clip(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<clip<bf16>, clip<float>>(call, begin, end);
}
void ClipDgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<clip_dgrad<bf16>, clip_dgrad<float>>(call, begin, end);
}
void SquaredRelu(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<squared_relu<bf16>, squared_relu<float>>(call, begin, end);
}
void SquaredReluDgrad(const KernelCall& call, int64_t begin, int64_t end) {
  by_type<squared_relu_dgrad<bf16>, squared_relu_dgrad<float>>(call, begin, end);
}
}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(SigmoidGateRows);
HWY_EXPORT(SigmoidGateDgradRows);
HWY_EXPORT(Scale);
HWY_EXPORT(ScaleBy);
HWY_EXPORT(SoftCap);
HWY_EXPORT(SoftCapDgrad);
HWY_EXPORT(Clip);
HWY_EXPORT(ClipDgrad);
HWY_EXPORT(SquaredRelu);
HWY_EXPORT(SquaredReluDgrad);

/// x is operand number `x`; `tensors` of its size move.
void by_rows(const KernelCall& call, size_t x, int64_t tensors, RowKernel piece) {
  over_rows(call, call.in[x].rows(), tensors * call.in[x].columns() * size_of(call.in[x].dtype), piece);
}
void sigmoid_gate(const KernelCall& call) { by_rows(call, 0, 2, HWY_DYNAMIC_DISPATCH(SigmoidGateRows)); }
void sigmoid_gate_dgrad(const KernelCall& call) { by_rows(call, 1, 3, HWY_DYNAMIC_DISPATCH(SigmoidGateDgradRows)); }

void scale(const KernelCall& call) { over_elements(call, 2, HWY_DYNAMIC_DISPATCH(Scale)); }
void scale_by(const KernelCall& call) { over_elements(call, 2, HWY_DYNAMIC_DISPATCH(ScaleBy)); }
/// in: dy, x, index, few numbers a token.
template <class X>
void scale_sums(const KernelCall& call) {
  const X *dy = call.in[0].as<const X>(), *x = call.in[1].as<const X>();
  const auto* index = call.in[2].as<const int32_t>();
  std::vector<float> sums(static_cast<size_t>(call.updates[0].elements()));
  for (int64_t i = 0; i < call.in[0].elements(); ++i)
    sums[static_cast<size_t>(index[i])] += static_cast<float>(dy[i]) * static_cast<float>(x[i]);
  auto* acc = call.updates[0].as<float>();
  for (size_t n = 0; n < sums.size(); ++n) acc[n] = call.overwrite ? sums[n] : acc[n] + sums[n];
}
void scale_by_wgrad(const KernelCall& call) {
  call.in[0].dtype == Dtype::bf16 ? scale_sums<bf16>(call) : scale_sums<float>(call);
}
void soft_cap(const KernelCall& call) { over_elements(call, 2, HWY_DYNAMIC_DISPATCH(SoftCap)); }
void soft_cap_dgrad(const KernelCall& call) { over_elements(call, 3, HWY_DYNAMIC_DISPATCH(SoftCapDgrad)); }
void clip(const KernelCall& call) { over_elements(call, 2, HWY_DYNAMIC_DISPATCH(Clip)); }
void clip_dgrad(const KernelCall& call) { over_elements(call, 3, HWY_DYNAMIC_DISPATCH(ClipDgrad)); }
void squared_relu(const KernelCall& call) { over_elements(call, 2, HWY_DYNAMIC_DISPATCH(SquaredRelu)); }
void squared_relu_dgrad(const KernelCall& call) { over_elements(call, 3, HWY_DYNAMIC_DISPATCH(SquaredReluDgrad)); }

}  // namespace

std::vector<KernelEntry> gate_kernels() {
  return {{"sigmoid_gate", "host", "highway", takes<"xx">, nullptr, sigmoid_gate},
          {"sigmoid_gate_dgrad", "host", "highway", takes<"xxx">, nullptr, sigmoid_gate_dgrad},
          {"scale", "host", "highway", takes<"x">, nullptr, scale},
          {"scale_by", "host", "highway", takes<"xai">, nullptr, scale_by},
          {"scale_by_wgrad", "host", "plain", takes<"xxi", "a">, nullptr, scale_by_wgrad},
          {"soft_cap", "host", "highway", takes<"x">, nullptr, soft_cap},
          {"soft_cap_dgrad", "host", "highway", takes<"xx">, nullptr, soft_cap_dgrad},
          {"clip", "host", "highway", takes<"x">, nullptr, clip},
          {"clip_dgrad", "host", "highway", takes<"xx">, nullptr, clip_dgrad},
          {"squared_relu", "host", "highway", takes<"x">, nullptr, squared_relu},
          {"squared_relu_dgrad", "host", "highway", takes<"xx">, nullptr, squared_relu_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
