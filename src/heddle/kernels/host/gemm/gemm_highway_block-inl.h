// The inner product of the highway engine: rows × 16 columns of C whose sums stand in registers while the depth
// runs by. Every element is one chain of multiply-adds in increasing depth (fused where the instruction set has
// it), which begins at zero or at the sum of the run before.
//
// 6 × 16 fills twelve of AVX2's sixteen registers, 24 of NEON's 32. Where a register holds four floats and there
// are sixteen of them (SSE4), the sixteen columns are done as two times eight. While a block runs, it asks for
// lines of A that a later block reads, for those of C that it writes itself, and for lines that are copied later.
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
constexpr int64_t kStepsOfLine = 16;  // of fp32 in a line of 64 bytes

/// C[rows,16] = from (or zero) + A·B. Strides in elements.
struct BlockProduct {
  int64_t depth = 0;
  const float* a = nullptr;  // element (row, depth) at row · a_row + depth · kDepthStride
  int64_t a_row = 0;
  const float* next = nullptr;       // as many numbers as the depth, which later blocks read and this one asks for
  const std::byte* ahead = nullptr;  // of what is copied later, a line for each 16 of the depth
  int64_t ahead_step = 0;            // bytes from line to line
  const float* b = nullptr;          // [depth][16]
  const float* from = nullptr;       // [rows][16], or null
  void* to = nullptr;                // fp32, or bf16 where `narrow`
  int64_t to_stride = 0;
  int64_t width = kPanelWidth;  // columns that are written
  bool narrow = false;
  bool add = false;             // to what stands there, which is fp32
  const float* bias = nullptr;  // [width]
  /// True if sums are written as they stand in the registers.
  bool plain() const { return width == kPanelWidth && !narrow && bias == nullptr; }
};

#if HWY_ARCH_ARM_A64
constexpr int kVectorsAtOnce = static_cast<int>(kPanelWidth / kLanes);
#else
constexpr int kVectorsAtOnce = 2;
#endif
static_assert(kPanelWidth % (kVectorsAtOnce * kLanes) == 0);

/// Finished sums [rows][16] to C.
inline HWY_NOINLINE void finish_rows(int64_t rows, const float* sums, const BlockProduct& p) {
  for (int64_t r = 0; r < rows; ++r, sums += kPanelWidth) {
    const int64_t at = r * p.to_stride;
    sweep(p.width, [&](int64_t i, auto lanes, auto) HEDDLE_BODY {
      V sum = load(sums + i, lanes);
      if (p.bias != nullptr) sum = hn::Add(sum, load(p.bias + i, lanes));
      if (p.narrow) {
        store(sum, static_cast<bf16*>(p.to) + at + i, lanes);
      } else {
        float* const to = static_cast<float*>(p.to) + at + i;
        store(p.add ? hn::Add(load(to, lanes), sum) : sum, to, lanes);
      }
    });
  }
}

template <int kRows, int64_t kDepthStride>
HWY_NOINLINE void multiply_rows(const BlockProduct& p) {
  HWY_ALIGN float finished[kRows * kPanelWidth];
  const bool plain = p.plain();
  float* const to = plain ? static_cast<float*>(p.to) : finished;
  const int64_t to_stride = plain ? p.to_stride : kPanelWidth;
  if (plain) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(to + r * to_stride, 1);
  }
  for (int64_t column = 0; column < kPanelWidth; column += kVectorsAtOnce * kLanes) {
    V sum[kRows][kVectorsAtOnce];
    if (p.from != nullptr) {
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectorsAtOnce; ++v) {
          sum[r][v] = load(p.from + r * kPanelWidth + column + v * kLanes, Whole{});
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
    const int64_t a_row = p.a_row;
    const auto step = [&]() HEDDLE_BODY {
      V right[kVectorsAtOnce];
#pragma GCC unroll 4
      for (int v = 0; v < kVectorsAtOnce; ++v) right[v] = load(b + v * kLanes, Whole{});
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const V left = set(a[r * a_row]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectorsAtOnce; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
      }
      a += kDepthStride;
      b += kPanelWidth;
    };
    const float* next = p.next;
    const std::byte* ahead = p.ahead;
    int64_t d = 0;
    for (; d + kStepsOfLine <= p.depth; d += kStepsOfLine, next += kStepsOfLine) {
      __builtin_prefetch(next);
      __builtin_prefetch(ahead, 0, 2);  // into the second level, where it waits to be copied
      ahead += p.ahead_step;
#pragma GCC unroll 4
      for (int i = 0; i < kStepsOfLine; ++i) step();
    }
    for (; d < p.depth; ++d) step();
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectorsAtOnce; ++v) {
        float* const at = to + r * to_stride + column + v * kLanes;
        store(plain && p.add ? hn::Add(load(at, Whole{}), sum[r][v]) : sum[r][v], at, Whole{});
      }
    }
  }
  if (!plain) finish_rows(kRows, finished, p);
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

/// Strips of up to 6 rows, as equal as can be.
struct Strips {
  int64_t rows = 0, count = 0;
  explicit Strips(int64_t all) : rows(all), count((all + kStripRows - 1) / kStripRows) {}
  int64_t begin(int64_t strip) const { return rows * strip / count; }
  int64_t size(int64_t strip) const { return begin(strip + 1) - begin(strip); }
};

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
