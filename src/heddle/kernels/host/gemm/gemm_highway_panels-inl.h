// Copies of operands in the forms that the highway engine's blocks read, widened to fp32. B has panels of 16
// columns, [depth][16], zeros beyond the width. A transposed A has strips of 6 rows, [depth][6].
#if defined(HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_PANELS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_PANELS_INL_H
#undef HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_PANELS_INL_H
#else
#define HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_PANELS_INL_H
#endif

#include <algorithm>

#include "heddle/kernels/host/gemm/gemm_highway_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using Quad = hn::FixedTag<float, 4>;

HWY_INLINE hn::Vec<Quad> load_quad(const float* p) { return hn::LoadU(Quad(), p); }
HWY_INLINE hn::Vec<Quad> load_quad(const bf16* p) {
  const hn::FixedTag<uint32_t, 4> words;
  const hn::FixedTag<uint16_t, 4> halves;
  const auto wide = hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(Quad(), hn::ShiftLeft<16>(wide));
}

/// Four depths of as many rows as a vector has blocks of four lanes, row i + 4·block in block `block`.
template <class X>
HWY_INLINE V load_quads(const X* p, int64_t stride) {
  if constexpr (kLanes == 4) {
    return load_quad(p);
  } else {
    return hn::Combine(Floats(), load_quad(p + 4 * stride), load_quad(p));
  }
}

/// out[d][i] = from[i][d] for i < 16, rows of out `out_stride` apart.
template <class X>
HWY_INLINE void transpose_panel(const X* from, int64_t stride, int64_t depth, float* out,
                                int64_t out_stride = kPanelWidth) {
  const hn::Repartition<uint64_t, Floats> pairs;
  int64_t d = 0;
  for (; d + 4 <= depth; d += 4) {
    for (int64_t i = 0; i < kPanelWidth; i += kLanes) {
      const X* at = from + i * stride + d;
      const V a = load_quads(at, stride), b = load_quads(at + stride, stride);
      const V c = load_quads(at + 2 * stride, stride), e = load_quads(at + 3 * stride, stride);
      const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(Floats(), a, b));
      const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(Floats(), a, b));
      const auto ce_low = hn::BitCast(pairs, hn::InterleaveLower(Floats(), c, e));
      const auto ce_high = hn::BitCast(pairs, hn::InterleaveUpper(Floats(), c, e));
      float* const to = out + d * out_stride + i;
      hn::StoreU(hn::BitCast(Floats(), hn::InterleaveLower(pairs, ab_low, ce_low)), Floats(), to);
      hn::StoreU(hn::BitCast(Floats(), hn::InterleaveUpper(pairs, ab_low, ce_low)), Floats(), to + out_stride);
      hn::StoreU(hn::BitCast(Floats(), hn::InterleaveLower(pairs, ab_high, ce_high)), Floats(),
                 to + 2 * out_stride);
      hn::StoreU(hn::BitCast(Floats(), hn::InterleaveUpper(pairs, ab_high, ce_high)), Floats(),
                 to + 3 * out_stride);
    }
  }
  for (; d < depth; ++d) {
    for (int64_t i = 0; i < kPanelWidth; ++i) out[d * out_stride + i] = static_cast<float>(from[i * stride + d]);
  }
}

/// out[d][0 … rows) = from[d][0 … rows) for 4 to 6 rows.
template <class X>
HWY_INLINE void copy_strip(const X* from, int64_t stride, int64_t depth, int64_t rows, float* out) {
  for (int64_t d = 0; d < depth; ++d, from += stride, out += kStripRows) {
    const auto low = load_quad(from), high = load_quad(from + rows - 4);  // some columns twice
    hn::StoreU(low, Quad(), out);
    hn::StoreU(high, Quad(), out + rows - 4);
  }
}
#endif

/// out[d][i] = B(d, i) for i < width, which is from[i][d] when transposed, else from[d][i]; 0 up to 16.
template <class X>
HWY_INLINE void fill_panel(const X* from, int64_t stride, bool transposed, int64_t depth, int64_t width,
                           float* out) {
#if HWY_TARGET != HWY_SCALAR
  if (transposed && width == kPanelWidth) return transpose_panel(from, stride, depth, out);
#endif
  for (int64_t d = 0; d < depth; ++d, out += kPanelWidth) {
    for (int64_t i = 0; i < kPanelWidth; ++i) {
      out[i] = i < width ? static_cast<float>(transposed ? from[i * stride + d] : from[d * stride + i]) : 0.0f;
    }
  }
}

/// Panels of columns side by side, the next at `out_panel` behind: rows of B are read as far as they go, since far
/// apart they are on other pages.
template <class X>
HWY_INLINE void fill_panels(const X* from, int64_t stride, bool transposed, int64_t depth, int64_t columns,
                            float* out, int64_t out_panel) {
  const int64_t whole = transposed ? 0 : columns / kPanelWidth;
  constexpr int64_t kRowsAhead = 16, kLine = 64 / static_cast<int64_t>(sizeof(X));
  const X* row = from;
  for (int64_t d = 0; d < depth && whole > 0; ++d, row += stride) {
    for (int64_t i = 0; i < whole * kPanelWidth; i += kLine) __builtin_prefetch(row + kRowsAhead * stride + i);
    for (int64_t p = 0; p < whole; ++p) {
      float* const to = out + p * out_panel + d * kPanelWidth;
      __builtin_prefetch(to + 4 * kPanelWidth, 1);
      for (int64_t i = 0; i < kPanelWidth; i += kLanes)
        store(load(row + p * kPanelWidth + i, Whole{}), to + i, Whole{});
    }
  }
  for (int64_t p = whole; p * kPanelWidth < columns; ++p) {
    fill_panel(from + p * kPanelWidth * (transposed ? stride : 1), stride, transposed, depth,
               std::min(columns - p * kPanelWidth, kPanelWidth), out + p * out_panel);
  }
}

/// out[d][r] = from[d][r] for r < rows <= 6; what lies beyond in a strip stays as it is.
template <class X>
HWY_INLINE void fill_strip(const X* from, int64_t stride, int64_t depth, int64_t rows, float* out) {
#if HWY_TARGET != HWY_SCALAR
  if (rows >= 4) return copy_strip(from, stride, depth, rows, out);
#endif
  for (int64_t d = 0; d < depth; ++d, from += stride, out += kStripRows) {
    for (int64_t r = 0; r < rows; ++r) out[r] = static_cast<float>(from[r]);
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
