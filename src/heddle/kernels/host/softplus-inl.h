// ln(1 + e^x), and the share that its root's gradient passes on, in fp32. Compiled once for each instruction set.
#if defined(HEDDLE_KERNELS_HOST_SOFTPLUS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_SOFTPLUS_INL_H
#undef HEDDLE_KERNELS_HOST_SOFTPLUS_INL_H
#else
#define HEDDLE_KERNELS_HOST_SOFTPLUS_INL_H
#endif

#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// ln(1 + e^x) = max(x, 0) + ln(1 + y) with y = e^−|x|, and ln(1 + y) = 2·artanh(y ÷ (2 + y)), of which the
/// argument is at most a third: seven terms.
HWY_INLINE V softplus(V x) {
  const V y = exp_up_to_88(hn::Neg(hn::Abs(x)));
  const V s = hn::Div(y, hn::Add(set(2.0f), y)), square = hn::Mul(s, s);
  V p = set(2.0f / 15);
  for (const float term : {2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f})
    p = hn::MulAdd(p, square, set(term));
  return hn::Add(hn::Max(x, zero()), hn::Mul(p, s));
}

/// (1 − e^−s²) ÷ 2s for s ≥ 0, the slope of s = √ln(1 + e^x); by the exponential's series where s² is small.
HWY_INLINE V root_softplus_slope(V s) {
  const V z = hn::Mul(s, s);
  V p = set(1.0f / 5040);
  for (const float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f})
    p = hn::NegMulAdd(z, p, set(term));
  const V small = hn::Mul(hn::Mul(set(0.5f), s), p);
  const V large = hn::Div(hn::Sub(set(1.0f), exp_up_to_88(hn::Neg(z))), hn::Add(s, s));
  return hn::IfThenElse(hn::Lt(z, set(0.5f)), small, large);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
