// tanh, and scores that it caps, in fp32. Compiled once for each instruction set.
#if defined(HEDDLE_KERNELS_HOST_TANH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_TANH_INL_H
#undef HEDDLE_KERNELS_HOST_TANH_INL_H
#else
#define HEDDLE_KERNELS_HOST_TANH_INL_H
#endif

#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// tanh z: an odd polynomial where |z| is small, else 1 − 2·σ(−2|z|) with the sign of z.
HWY_INLINE V tanh_of(V z) {
  const V a = hn::Abs(z), square = hn::Mul(z, z);
  V p = hn::MulAdd(set(-5.70498872745e-3f), square, set(2.06390887954e-2f));
  p = hn::MulAdd(p, square, set(-5.37397155531e-2f));
  p = hn::MulAdd(p, square, set(1.33314422036e-1f));
  p = hn::MulAdd(p, square, set(-3.33332819422e-1f));
  const V small = hn::MulAdd(hn::Mul(p, square), z, z);
  const V tail = hn::NegMulAdd(set(2.0f), sigmoid(hn::Mul(set(-2.0f), a)), set(1.0f));
  return hn::IfThenElse(hn::Lt(a, set(0.625f)), small, hn::CopySign(tail, z));
}

/// Each x of a row becomes c·tanh(x ÷ c).
HWY_INLINE void cap_row(float c, int64_t n, float* x) {
  sweep(n, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    const V bent = tanh_of(hn::Div(load(static_cast<const float*>(x) + i, lanes), set(c)));
    store(hn::Mul(set(c), bent), x + i, lanes);
  });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
