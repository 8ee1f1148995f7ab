// The transpose of 16 × 16 words of 32 bits in registers of AVX-512.
#pragma once

#include <immintrin.h>

namespace heddle::kernels::host {

__attribute__((target("avx512f"), always_inline)) inline void transpose_words(__m512i* r) {
  __m512i t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i a = _mm512_unpacklo_epi32(r[i], r[i + 1]), b = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i c = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]), d = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(a, c);
    t[i + 1] = _mm512_unpackhi_epi64(a, c);
    t[i + 2] = _mm512_unpacklo_epi64(b, d);
    t[i + 3] = _mm512_unpackhi_epi64(b, d);
  }
  // t[4g + j], lane L: column 4L + j of rows 4g..4g+3. Gather the four groups g of one column.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i a = _mm512_shuffle_i32x4(t[j], t[4 + j], 0x88), b = _mm512_shuffle_i32x4(t[j], t[4 + j], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(t[8 + j], t[12 + j], 0xdd);
    r[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    r[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(a, c, 0xdd);
    r[12 + j] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
}

}  // namespace heddle::kernels::host
