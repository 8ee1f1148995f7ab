// Products of small fp32 matrices that lie in a core's own caches, by Highway. Compiled once for each instruction
// set.
#if defined(HEDDLE_KERNELS_HOST_SMALL_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_HOST_SMALL_PRODUCT_INL_H
#undef HEDDLE_KERNELS_HOST_SMALL_PRODUCT_INL_H
#else
#define HEDDLE_KERNELS_HOST_SMALL_PRODUCT_INL_H
#endif

#include "heddle/kernels/host/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::kernels::host::HWY_NAMESPACE {

enum class Into : uint8_t { set, add, subtract };

/// A matrix that is read, in any order of its elements: element (i, j) at data[i·row + j·column].
struct Left {
  const float* data;
  int64_t row, column = 1;
};
/// The transpose of a row-major matrix.
HWY_INLINE Left transposed(const float* data, int64_t pitch) { return {data, 1, pitch}; }

template <Into into, int rows, int vectors>
HWY_INLINE void product_tile(int64_t depth, Left a, const float* b, int64_t b_pitch, float* c, int64_t c_pitch) {
  V sums[rows][vectors];
#pragma GCC unroll 6
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j)
      sums[i][j] = into == Into::set ? zero() : hn::LoadU(Floats(), c + i * c_pitch + j * kLanes);
  }
  for (int64_t p = 0; p < depth; ++p, b += b_pitch, a.data += a.column) {
    V right[vectors];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) right[j] = hn::LoadU(Floats(), b + j * kLanes);
#pragma GCC unroll 6
    for (int i = 0; i < rows; ++i) {
      const V left = set(a.data[i * a.row]);
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j)
        sums[i][j] = into == Into::subtract ? hn::NegMulAdd(left, right[j], sums[i][j])
                                            : hn::MulAdd(left, right[j], sums[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) hn::StoreU(sums[i][j], Floats(), c + i * c_pitch + j * kLanes);
  }
}

template <Into into, int vectors>
HWY_INLINE void product_strip(int64_t m, int64_t depth, Left a, const float* b, int64_t b_pitch, float* c,
                              int64_t c_pitch) {
  constexpr int kRows = kLanes == 16 ? 6 : 4;
  int64_t i = 0;
  const auto at = [&](int64_t row) HEDDLE_BODY { return Left{a.data + row * a.row, a.row, a.column}; };
  for (; i + kRows <= m; i += kRows)
    product_tile<into, kRows, vectors>(depth, at(i), b, b_pitch, c + i * c_pitch, c_pitch);
  for (; i + 2 <= m; i += 2) product_tile<into, 2, vectors>(depth, at(i), b, b_pitch, c + i * c_pitch, c_pitch);
  if (i < m) product_tile<into, 1, vectors>(depth, at(i), b, b_pitch, c + i * c_pitch, c_pitch);
}

/// c[m,n] =, += or −= a[m,depth]·b[depth,n], each element in increasing depth. n is a multiple of the lanes.
template <Into into>
HWY_NOINLINE void product(int64_t m, int64_t n, int64_t depth, Left a, const float* b, int64_t b_pitch, float* c,
                          int64_t c_pitch) {
  constexpr int kVectors = kLanes == 16 ? 4 : 2;
  int64_t j = 0;
  for (; j + kVectors * kLanes <= n; j += kVectors * kLanes)
    product_strip<into, kVectors>(m, depth, a, b + j, b_pitch, c + j, c_pitch);
  for (; j < n; j += kLanes) product_strip<into, 1>(m, depth, a, b + j, b_pitch, c + j, c_pitch);
}

/// to[j,i] = from[i,j] for i < rows, zero from there to to_columns. Columns and to_columns are multiples of four.
HWY_INLINE void transpose(int64_t rows, int64_t columns, const float* from, int64_t from_pitch, float* to,
                          int64_t to_pitch, int64_t to_columns) {
  const hn::Full128<float> four;
  const hn::Repartition<uint64_t, decltype(four)> pairs;
  for (int64_t i = 0; i < to_columns; i += 4) {
    for (int64_t j = 0; j < columns; j += 4) {
      hn::Vec<decltype(four)> r[4];
      for (int64_t x = 0; x < 4; ++x)
        r[x] = i + x < rows ? hn::LoadU(four, from + (i + x) * from_pitch + j) : hn::Zero(four);
      const auto a = hn::BitCast(pairs, hn::InterleaveLower(four, r[0], r[1]));
      const auto b = hn::BitCast(pairs, hn::InterleaveLower(four, r[2], r[3]));
      const auto c = hn::BitCast(pairs, hn::InterleaveUpper(four, r[0], r[1]));
      const auto d = hn::BitCast(pairs, hn::InterleaveUpper(four, r[2], r[3]));
      hn::StoreU(hn::BitCast(four, hn::InterleaveLower(pairs, a, b)), four, to + j * to_pitch + i);
      hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(pairs, a, b)), four, to + (j + 1) * to_pitch + i);
      hn::StoreU(hn::BitCast(four, hn::InterleaveLower(pairs, c, d)), four, to + (j + 2) * to_pitch + i);
      hn::StoreU(hn::BitCast(four, hn::InterleaveUpper(pairs, c, d)), four, to + (j + 3) * to_pitch + i);
    }
  }
}

}  // namespace heddle::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
