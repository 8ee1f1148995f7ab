// Sums over rows, from the partial sums of blocks of rows in scratch: partial p is a row of H floats. They are
// added in block order, so that the bits don't depend on who computed which block.
#if defined(HEDDLE_KERNELS_HOST_COLUMN_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_COLUMN_SUMS_INL_H
#undef HEDDLE_KERNELS_HOST_COLUMN_SUMS_INL_H
#else
#define HEDDLE_KERNELS_HOST_COLUMN_SUMS_INL_H
#endif

#include "heddle/kernels/host/lanes-inl.h"
#include "heddle/kernels/host/row_pieces.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

/// sum_H = Σ of the partials; zeros when there are none.
HWY_INLINE void add_partials(const std::byte* scratch, int64_t partials, int64_t H, float* sum_H) {
  sweep(H, [&](int64_t h, auto lanes, auto) HEDDLE_BODY {
    V sum = zero();
    for (int64_t p = 0; p < partials; ++p) sum = hn::Add(sum, load(partial_sum(scratch, p, H) + h, lanes));
    store(sum, sum_H + h, lanes);
  });
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
