// The highest of a list of floats, one after the other. The lower index wins ties; a NaN is taken only when nothing
// else is left. No branch depends on the values, for guessing them wrong would cost more than the search.
#if defined(HEDDLE_KERNELS_HOST_TOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_TOP_INL_H
#undef HEDDLE_KERNELS_HOST_TOP_INL_H
#else
#define HEDDLE_KERNELS_HOST_TOP_INL_H
#endif

#include <bit>

#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/router.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// The order of floats as the order of unsigned numbers above 0: both zeros alike, every NaN 1, below all else.
HWY_INLINE hn::Vec<Words> order_of(V x) {
  const Words words;
  const auto bits = hn::BitCast(words, hn::Add(x, zero()));  // -0 becomes +0
  const hn::RebindToSigned<Floats> integers;
  const auto sign = hn::BitCast(words, hn::ShiftRight<31>(hn::BitCast(integers, bits)));
  const auto order = hn::Xor(bits, hn::Or(sign, hn::Set(words, 0x80000000u)));
  return hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(x)), hn::Set(words, 1u), order);
}
/// The float of that order; a NaN for 1.
HWY_INLINE float float_of(uint32_t order) {
  return std::bit_cast<float>(order & 0x80000000u ? order ^ 0x80000000u : ~order);
}

/// The orders of up to kMostExperts floats; 0 where nothing is left to take.
struct Orders {
  HWY_ALIGN uint32_t of[kMostExperts + kLanes];

  HWY_INLINE void read(const float* values, int64_t n) {
    const Words words;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) hn::Store(order_of(load(values + i, Whole{})), words, of + i);
    if (i == n) return;
    hn::Store(order_of(load(values + i, Part{n - i})), words, of + i);
    for (int64_t lane = n; lane < i + kLanes; ++lane) of[lane] = 0;
  }

  /// Takes the highest of the first n and returns its index.
  HWY_INLINE int64_t take(int64_t n) {
    const Words words;
    auto most = hn::Load(words, of);
    for (int64_t i = kLanes; i < n; i += kLanes) most = hn::Max(most, hn::Load(words, of + i));
    const auto highest = hn::MaxOfLanes(words, most);
    for (int64_t i = 0;; i += kLanes) {
      const auto lane = hn::FindFirstTrue(words, hn::Eq(hn::Load(words, of + i), highest));
      if (lane < 0) continue;
      of[i + lane] = 0;
      return i + lane;
    }
  }
};

/// The sum of the two highest of n ≥ 2 orders, highest first.
HWY_INLINE float sum_of_two_highest(const uint32_t* orders, int64_t n) {
  uint32_t first = 0, second = 0;
  for (int64_t i = 0; i < n; ++i) {
    second = std::max(second, std::min(first, orders[i]));
    first = std::max(first, orders[i]);
  }
  return float_of(first) + float_of(second);
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
