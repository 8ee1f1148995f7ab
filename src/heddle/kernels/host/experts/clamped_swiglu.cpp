// Clamped SwiGLU and its gradient, in one pass. R rows, F width; l the limit.
//   (gate, up) = u + bias of the row's expert, g = min(gate, l), w = up within ±l: a = g·σ(αg)·(w + 1)
#include "heddle/kernels/host/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heddle/kernels/host/experts/clamped_swiglu.cpp"
#include "heddle/kernels/host/experts/expert_of_row.h"
#include "heddle/kernels/host/host.h"
#include "heddle/kernels/host/row_pieces.h"
#include "hwy/foreach_target.h"
// The order matters: this one is compiled for each target.
#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {
namespace {
using device::KernelCall;

struct Clamp {
  V alpha, limit, below;  // below: −limit
  explicit Clamp(const KernelCall& call)
      : alpha(set(static_cast<float>(call.op->attributes.number("alpha")))),
        limit(set(static_cast<float>(call.op->attributes.number("limit")))),
        below(hn::Neg(limit)) {}
  HWY_INLINE V gate(V x) const { return at_most(limit, x); }
  HWY_INLINE V up(V x) const { return at_least(below, at_most(limit, x)); }
  template <class X>
  HWY_INLINE V sigmoid_of(V g) const {
    return sigmoid_for<X>(hn::Mul(alpha, g));
  }
};

template <class Lanes>
HWY_INLINE V biased(V x, const float* bias, Lanes lanes) {
  return bias == nullptr ? x : hn::Add(x, load(bias, lanes));
}
HWY_INLINE const float* plus(const float* bias, int64_t f) { return bias == nullptr ? nullptr : bias + f; }

template <class X>
void clamped_swiglu(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.out[0].columns();
  const Clamp clamp(call);
  ExpertOfRow expert(call, 1);
  for (int64_t r = begin; r < end; ++r) {
    const X *gate_F = call.in[0].as<const X>() + r * 2 * F, *up_F = gate_F + F;
    const float* bias_2F = expert.bias(r);
    X* a_F = call.out[0].as<X>() + r * F;
    sweep(F, [&](int64_t f, auto lanes, auto nth) HEDDLE_BODY {
      ask_for(gate_F + 4 * F + f, nth);
      ask_for(up_F + 4 * F + f, nth);
      const V g = clamp.gate(biased(load(gate_F + f, lanes), plus(bias_2F, f), lanes));
      const V w = clamp.up(biased(load(up_F + f, lanes), plus(bias_2F, F + f), lanes));
      store(hn::Mul(hn::Mul(g, clamp.sigmoid_of<X>(g)), hn::Add(w, set(1.0f))), a_F + f, lanes);
    });
  }
}

/// dgate = da·(w + 1)·s·(1 + αg·(1 − s)) with s = σ(αg) where g is gate, else 0; dup = da·g·s where w is up, else
/// 0.
template <class X>
void clamped_swiglu_dgrad(const KernelCall& call, int64_t begin, int64_t end) {
  const int64_t F = call.in[0].columns();
  const Clamp clamp(call);
  ExpertOfRow expert(call, 2);
  for (int64_t r = begin; r < end; ++r) {
    const X *gate_F = call.in[1].as<const X>() + r * 2 * F, *up_F = gate_F + F;
    const X* da_F = call.in[0].as<const X>() + r * F;
    const float* bias_2F = expert.bias(r);
    X* dgate_F = call.out[0].as<X>() + r * 2 * F;
    sweep(F, [&](int64_t f, auto lanes, auto nth) HEDDLE_BODY {
      ask_for(gate_F + 4 * F + f, nth);
      ask_for(up_F + 4 * F + f, nth);
      ask_for(da_F + 2 * F + f, nth);
      const V one = set(1.0f), da = load(da_F + f, lanes);
      const V gate = biased(load(gate_F + f, lanes), plus(bias_2F, f), lanes);
      const V up = biased(load(up_F + f, lanes), plus(bias_2F, F + f), lanes);
      const V g = clamp.gate(gate), w = clamp.up(up), s = clamp.sigmoid_of<X>(g);
      const V slope = hn::Mul(s, hn::MulAdd(hn::Mul(clamp.alpha, g), hn::Sub(one, s), one));
      const V dgate = hn::Mul(hn::Mul(da, hn::Add(w, one)), slope);
      const V dup = hn::Mul(da, hn::Mul(g, s));
      const auto cut_up = hn::Or(hn::Lt(clamp.limit, up), hn::Lt(up, clamp.below));
      store(hn::IfThenZeroElse(hn::Lt(clamp.limit, gate), dgate), dgate_F + f, lanes);
      store(hn::IfThenZeroElse(cut_up, dup), dgate_F + F + f, lanes);
    });
  }
}
}  // namespace

void ClampedSwigluRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? clamped_swiglu<bf16>(call, begin, end)
                                  : clamped_swiglu<float>(call, begin, end);
}
void ClampedSwigluDgradRows(const KernelCall& call, int64_t begin, int64_t end) {
  call.in[0].dtype == Dtype::bf16 ? clamped_swiglu_dgrad<bf16>(call, begin, end)
                                  : clamped_swiglu_dgrad<float>(call, begin, end);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::kernels::host {
namespace {
using device::KernelCall;
HWY_EXPORT(ClampedSwigluRows);
HWY_EXPORT(ClampedSwigluDgradRows);

void clamped_swiglu(const KernelCall& call) {
  over_rows(call, call.in[0].rows(), 3 * call.out[0].columns() * size_of(call.in[0].dtype),
            HWY_DYNAMIC_DISPATCH(ClampedSwigluRows));
}
void clamped_swiglu_dgrad(const KernelCall& call) {
  over_rows(call, call.in[0].rows(), 5 * call.in[0].columns() * size_of(call.in[0].dtype),
            HWY_DYNAMIC_DISPATCH(ClampedSwigluDgradRows));
}

}  // namespace

std::vector<KernelEntry> clamped_swiglu_kernels() {
  return {{"clamped_swiglu", "host", "highway", takes<"xai">, nullptr, clamped_swiglu},
          {"clamped_swiglu_dgrad", "host", "highway", takes<"xxai">, nullptr, clamped_swiglu_dgrad}};
}

}  // namespace heddle::kernels::host
#endif  // HWY_ONCE
