// The parts of a softmax over one row: its maximum, and Σ e^(x − m) in fp32.
#if defined(HEDDLE_KERNELS_HOST_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_SOFTMAX_INL_H
#undef HEDDLE_KERNELS_HOST_SOFTMAX_INL_H
#else
#define HEDDLE_KERNELS_HOST_SOFTMAX_INL_H
#endif

#include <cmath>
#include <limits>

#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// The largest of n ≥ 1 numbers; a NaN among them may be passed over (a sum will find it).
template <class X>
HWY_INLINE float maximum(const X* x, int64_t n) {
  const V lowest = set(-std::numeric_limits<float>::infinity());
  V most[4] = {lowest, lowest, lowest, lowest};
  sweep(n, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
    constexpr int at = decltype(nth)::value;
    most[at] = hn::Max(or_else(load(x + i, lanes), lowest, lanes), most[at]);
  });
  return hn::GetLane(hn::MaxOfLanes(Floats(), hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
}

/// ln Σ e^x.
template <class X>
HWY_INLINE float log_sum_exp(const X* x, int64_t n) {
  const float highest = maximum(x, n);
  const V most = set(highest);
  Sum sum;
  sweep(n, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
    sum.add(or_else(exp_up_to_88(hn::Sub(load(x + i, lanes), most)), zero(), lanes), nth);
  });
  return highest + std::log(sum.total());
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
