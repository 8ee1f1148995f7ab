// One row of a cross entropy: its loss and its dlogits, for logits that are stored and for those of a fused head.
#if defined(HEDDLE_KERNELS_HOST_LOSS_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_LOSS_ROWS_INL_H
#undef HEDDLE_KERNELS_HOST_LOSS_ROWS_INL_H
#else
#define HEDDLE_KERNELS_HOST_LOSS_ROWS_INL_H
#endif

#include "heddle/kernels/host/loss/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// 0 where the row is masked.
template <class X>
HWY_INLINE double row_loss(const X* logits_V, int32_t label, float lse) {
  return label < 0 ? 0.0 : static_cast<double>(lse) - static_cast<double>(static_cast<float>(logits_V[label]));
}

/// dlogits = scale·(e^(logits − lse) − own·onehot), rounded once; zeros where the row is masked. dlogits may be
/// logits itself, also as a narrower type.
template <class X, class Y>
HWY_INLINE void row_dlogits(const X* logits_V, int32_t label, int64_t count, float lse, float scale, float own,
                            Y* dlogits_V) {
  if (label < 0) {
    std::memset(static_cast<void*>(dlogits_V), 0, static_cast<size_t>(count) * sizeof(Y));
    return;
  }
  const bool here = label < count;  // else another rank's part of the vocabulary has it
  const float at_label = here ? static_cast<float>(logits_V[label]) : 0;
  const V shift = set(lse), factor = set(scale);
  sweep(count, [&](int64_t v, auto lanes, auto) HEDDLE_BODY {
    store(hn::Mul(factor, exp_up_to_88(hn::Sub(load(logits_V + v, lanes), shift))), dlogits_V + v, lanes);
  });
  HWY_ALIGN float one[kLanes];
  if (!here) return;
  store(hn::Mul(factor, hn::Sub(exp_up_to_88(set(at_label - lse)), set(own))), one, Whole{});
  dlogits_V[label] = Y(one[0]);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
