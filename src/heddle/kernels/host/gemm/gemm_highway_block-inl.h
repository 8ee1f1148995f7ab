// The inner product of the highway engine: rows × 16 columns of C whose sums stand in registers while the depth
// runs by. Every element is one chain of multiply-adds in increasing depth (fused where the instruction set has
// it), which begins at zero or at the sum of the run before.
//
// 6 × 16 fills twelve of AVX2's sixteen registers, 24 of NEON's 32. Where a register holds four floats and there
// are sixteen of them (SSE4), the sixteen columns are done as two times eight.
#if defined(HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_BLOCK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_BLOCK_INL_H
#undef HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_BLOCK_INL_H
#else
#define HEDDLE_KERNELS_HOST_GEMM_HIGHWAY_BLOCK_INL_H
#endif

#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

constexpr int kStripRows = 6;
constexpr int64_t kPanelWidth = 16;

/// C[rows,16] = from (or zero) + A·B, written to `to` or added to it. Strides in floats.
struct BlockProduct {
  int64_t depth = 0;
  const float* a = nullptr;  // element (row, depth) at row · a_row + depth · a_depth
  int64_t a_row = 0;
  const float* b = nullptr;  // [depth][16], rows b_stride apart
  int64_t b_stride = kPanelWidth;
  const float* from = nullptr;
  int64_t from_stride = 0;
  float* to = nullptr;
  int64_t to_stride = 0;
  bool add = false;
};

#if HWY_ARCH_ARM_A64
constexpr int kVectorsAtOnce = static_cast<int>(kPanelWidth / kLanes);
#else
constexpr int kVectorsAtOnce = 2;
#endif
static_assert(kPanelWidth % (kVectorsAtOnce * kLanes) == 0);

/// kDepthStride: of A.
template <int kRows, int64_t kDepthStride>
HWY_INLINE void multiply_rows(const BlockProduct& p) {
  for (int64_t column = 0; column < kPanelWidth; column += kVectorsAtOnce * kLanes) {
    V sum[kRows][kVectorsAtOnce];
    if (p.from != nullptr) {
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectorsAtOnce; ++v) {
          sum[r][v] = load(p.from + r * p.from_stride + column + v * kLanes, Whole{});
        }
      }
    } else {
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectorsAtOnce; ++v) sum[r][v] = zero();
      }
    }
    const float* a = p.a;
    const float* b = p.b + column;
    const int64_t a_row = p.a_row, b_stride = p.b_stride;
    for (int64_t d = 0; d < p.depth; ++d, a += kDepthStride, b += b_stride) {
      V right[kVectorsAtOnce];
#pragma GCC unroll 4
      for (int v = 0; v < kVectorsAtOnce; ++v) right[v] = load(b + v * kLanes, Whole{});
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const V left = set(a[r * a_row]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectorsAtOnce; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectorsAtOnce; ++v) {
        float* const to = p.to + r * p.to_stride + column + v * kLanes;
        store(p.add ? hn::Add(load(to, Whole{}), sum[r][v]) : sum[r][v], to, Whole{});
      }
    }
  }
}

/// rows: 1 to 6.
template <int64_t kDepthStride>
HWY_INLINE void multiply_block(int64_t rows, const BlockProduct& p) {
  switch (rows) {
    case 1: return multiply_rows<1, kDepthStride>(p);
    case 2: return multiply_rows<2, kDepthStride>(p);
    case 3: return multiply_rows<3, kDepthStride>(p);
    case 4: return multiply_rows<4, kDepthStride>(p);
    case 5: return multiply_rows<5, kDepthStride>(p);
    default: return multiply_rows<6, kDepthStride>(p);
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
