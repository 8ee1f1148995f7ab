// The parts of attention of one query to some keys, whose rows lie anywhere: scores, their exponentials, and sums
// of scaled rows, in fp32. Compiled once for each instruction set.
#if defined(HEDDLE_KERNELS_HOST_QUERY_KEYS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_QUERY_KEYS_INL_H
#undef HEDDLE_KERNELS_HOST_QUERY_KEYS_INL_H
#else
#define HEDDLE_KERNELS_HOST_QUERY_KEYS_INL_H
#endif

#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// Σ x · y, in the order of lanes-inl.h.
template <class X, class Y>
HWY_INLINE float dot(const X* x, const Y* y, int64_t n) {
  Sum sum;
  sweep(n, [&](int64_t i, auto lanes, auto nth)
               HEDDLE_BODY { sum.add_product(load(x + i, lanes), load(y + i, lanes), nth); });
  return sum.total();
}

/// to += factor · x
template <class X>
HWY_INLINE void add_scaled(float factor, const X* x, int64_t n, float* to) {
  const V f = set(factor);
  sweep(n, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
    store(hn::MulAdd(f, load(x + i, lanes), load(static_cast<const float*>(to) + i, lanes)), to + i, lanes);
  });
}

/// Σ exp(s_i − most) over the n of s, each of which takes its term's place.
HWY_INLINE float exponentials(float most, int64_t n, float* s) {
  const V down = set(most);
  Sum sum;
  sweep(n, [&](int64_t i, auto lanes, auto nth) HEDDLE_BODY {
    const V p = exp_up_to_88(hn::Sub(load(static_cast<const float*>(s) + i, lanes), down));
    sum.add(or_else(store(p, s + i, lanes), zero(), lanes), nth);
  });
  return sum.total();
}

/// Calls work(Q, K) with the element types of queries and keys.
template <class Work>
HWY_INLINE void by_types(Dtype q, Dtype k, const Work& work) {
  if (k == Dtype::bf16) {
    q == Dtype::bf16 ? work(bf16(), bf16()) : work(float(), bf16());
  } else {
    q == Dtype::bf16 ? work(bf16(), float()) : work(float(), float());
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
