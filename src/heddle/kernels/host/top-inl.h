// The highest of a list of floats, found in one scan that keeps the best so far. The lower index wins ties; a NaN
// is taken only when nothing else is left.
#if defined(HEDDLE_KERNELS_HOST_TOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_TOP_INL_H
#undef HEDDLE_KERNELS_HOST_TOP_INL_H
#else
#define HEDDLE_KERNELS_HOST_TOP_INL_H
#endif

#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/router.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// The order of floats as the order of unsigned numbers: both zeros alike, every NaN below all else.
HWY_INLINE hn::Vec<Words> order_of(V x) {
  const Words words;
  const auto bits = hn::BitCast(words, hn::Add(x, zero()));  // -0 becomes +0
  const hn::RebindToSigned<Floats> integers;
  const auto sign = hn::BitCast(words, hn::ShiftRight<31>(hn::BitCast(integers, bits)));
  const auto order = hn::Xor(bits, hn::Or(sign, hn::Set(words, 0x80000000u)));
  return hn::IfThenZeroElse(hn::RebindMask(words, hn::IsNaN(x)), order);
}

/// The `most` highest of all values offered, highest first. Indices must be offered in increasing order.
struct Top {
  HWY_INLINE explicit Top(int64_t most) : most(most) {}

  /// values[i] has index first + i.
  HWY_INLINE void offer(const float* values, int64_t n, int64_t first) {
    const Words words;
    HWY_ALIGN uint32_t lanes_order[kLanes];
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t here = std::min(kLanes, n - i);
      const auto order = order_of(here == kLanes ? load(values + i, Whole{}) : load(values + i, Part{here}));
      if (count == most && hn::AllFalse(words, hn::Gt(order, hn::Set(words, orders[most - 1])))) continue;
      hn::Store(order, words, lanes_order);
      for (int64_t lane = 0; lane < here; ++lane) insert(lanes_order[lane], static_cast<int32_t>(first + i + lane));
    }
  }

  HWY_INLINE void insert(uint32_t order, int32_t id) {
    if (count == most && order <= orders[most - 1]) return;
    int64_t at = count < most ? count++ : most - 1;
    for (; at > 0 && orders[at - 1] < order; --at) {
      orders[at] = orders[at - 1];
      ids[at] = ids[at - 1];
    }
    orders[at] = order;
    ids[at] = id;
  }

  int64_t most, count = 0;
  uint32_t orders[kMostExperts];
  int32_t ids[kMostExperts];
};

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
