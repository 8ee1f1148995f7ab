// Bringing rows of x and dy into tiles of B and A, for the amx engine's weight gradient. Included only by
// gemm_amx_wgrad.cpp.
//
// A unit is 32 rows t × 32 columns of bf16. Its form in B is a step pair whose columns are out of order, because
// one instruction then makes each line of it. Tile 0 holds the columns 8i … 8i+3, tile 1 the columns 8i+4 … 8i+7 (i
// = 0 … 3). The sums come out in that order and are put right once, when they are written. Its form in A is two
// tiles of [column][t].
#pragma once

#include "heddle/kernels/host/gemm/gemm_amx_tiles.h"
#include "heddle/kernels/host/gemm/gemm_block.h"

namespace heddle::kernels::host::amx {

/// Two vectors of a row of sums, in the order of B's tiles, to the columns 0 … 15 and 16 … 31.
HEDDLE_AMX void order_columns(__m512& low, __m512& high) {
  const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i last = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  const __m512i left = _mm512_castps_si512(low), right = _mm512_castps_si512(high);
  low = _mm512_castsi512_ps(_mm512_permutex2var_epi64(left, first, right));
  high = _mm512_castsi512_ps(_mm512_permutex2var_epi64(left, last, right));
}

HEDDLE_AMX_TARGET [[gnu::noinline]] static void pack_right_unit(const uint16_t* x, int64_t stride, uint16_t* out) {
#pragma GCC unroll 4
  for (int64_t pair = 0; pair < kTile; ++pair, x += 2 * stride) {
    const __m512i even = _mm512_loadu_si512(x), odd = _mm512_loadu_si512(x + stride);
    _mm512_store_si512(out + pair * kStep, _mm512_unpacklo_epi16(even, odd));
    _mm512_store_si512(out + kTileElements + pair * kStep, _mm512_unpackhi_epi16(even, odd));
  }
}

/// Lane q of the result: eight columns of row 8q.
HEDDLE_AMX __m512i every_eighth_row(const uint16_t* dy, int64_t stride) {
  const auto columns = [dy, stride](int64_t row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(dy + row * stride));
  };
  __m512i rows = _mm512_castsi128_si512(columns(0));
  rows = _mm512_mask_broadcast_i32x4(rows, 0x00f0, columns(8));
  rows = _mm512_mask_broadcast_i32x4(rows, 0x0f00, columns(16));
  return _mm512_mask_broadcast_i32x4(rows, 0xf000, columns(24));
}

/// Four lanes of 8 rows × 8 columns at a time, each transposed in place by three rounds of unpacking.
HEDDLE_AMX_TARGET [[gnu::noinline]] static void pack_left_unit(const uint16_t* dy, int64_t stride, uint16_t* out) {
  for (int64_t column = 0; column < kStep; column += 8) {
    __m512i r[8], s[8];
#pragma GCC unroll 8
    for (int64_t i = 0; i < 8; ++i) r[i] = every_eighth_row(dy + i * stride + column, stride);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      s[i] = _mm512_unpacklo_epi16(r[2 * i], r[2 * i + 1]);      // columns 0–3 of rows 2i, 2i+1
      s[4 + i] = _mm512_unpackhi_epi16(r[2 * i], r[2 * i + 1]);  // columns 4–7
    }
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      r[2 * i] = _mm512_unpacklo_epi32(s[2 * i], s[2 * i + 1]);  // two columns of four rows
      r[2 * i + 1] = _mm512_unpackhi_epi32(s[2 * i], s[2 * i + 1]);
    }
    uint16_t* to = out + column * kStep;
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t half = i / 2 * 4, which = i % 2;
      const __m512i upper = r[half + which], lower = r[half + 2 + which];
      _mm512_store_si512(to + (half + 2 * which) * kStep, _mm512_unpacklo_epi64(upper, lower));
      _mm512_store_si512(to + (half + 2 * which + 1) * kStep, _mm512_unpackhi_epi64(upper, lower));
    }
  }
}

/// Packs the unit at `from`, of which `rows` × `columns` are there (32 or more: all of it); the rest is not read
/// and becomes zeros.
template <bool kLeft>
HEDDLE_AMX void pack_unit(const uint16_t* from, int64_t stride, int64_t rows, int64_t columns, uint16_t* to) {
  alignas(64) uint16_t padded[kPairElements];
  if (rows < kStep || columns < kPanelColumns) {
    for (int64_t t = 0; t < kStep; ++t) {
      _mm512_store_si512(padded + t * kStep,
                         t < rows ? load_bf16(from + t * stride, columns) : _mm512_setzero_si512());
    }
    from = padded;
    stride = kStep;
  }
  if constexpr (kLeft) {
    pack_left_unit(from, stride, to);
  } else {
    pack_right_unit(from, stride, to);
  }
}

}  // namespace heddle::kernels::host::amx
