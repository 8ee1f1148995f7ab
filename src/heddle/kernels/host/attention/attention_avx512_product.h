// The one matrix product of the AVX-512 attention kernels:  C[m][n] (+)= Σ_k A(m, k)·B[k][n], k counting words.
//
// Lanes run along n; A is read by broadcast with any two strides, so that a transposed A costs nothing. A register
// block is 8 rows × up to 3 vectors. Sums run over k in increasing order, term by term.
#pragma once

#include <cstdint>

#include "heddle/kernels/host/attention/attention_avx512_words.h"

namespace heddle::kernels::host::attention {

constexpr int kRows = 8;  // of a register block

struct Strided {
  const float* data;
  int64_t row, depth;  // strides of m and k, in words
};

template <class Words, int vectors>
HEDDLE_AVX512_INLINE void multiply_block(int64_t depth, Strided a, const float* b, int64_t b_row, float* c,
                                         int64_t c_row, bool add) {
  __m512 sum[kRows][vectors];
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < vectors; ++n) {
      sum[m][n] = add ? _mm512_loadu_ps(c + m * c_row + n * kLanes) : _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    __m512 row[vectors];
#pragma GCC unroll 3
    for (int n = 0; n < vectors; ++n) row[n] = _mm512_loadu_ps(b + k * b_row + n * kLanes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const __m512 factor = _mm512_set1_ps(a.data[m * a.row + k * a.depth]);
#pragma GCC unroll 3
      for (int n = 0; n < vectors; ++n) sum[m][n] = Words::multiply(factor, row[n], sum[m][n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 3
    for (int n = 0; n < vectors; ++n) _mm512_storeu_ps(c + m * c_row + n * kLanes, sum[m][n]);
  }
}

/// `rows` is a multiple of 8; `depth` counts words, `vectors` vectors of 16 columns. add: C is read first, else
/// overwritten.
template <class Words>
HEDDLE_AVX512 void multiply(int64_t rows, int64_t vectors, int64_t depth, Strided a, const float* b, int64_t b_row,
                            float* c, int64_t c_row, bool add) {
  for (int64_t n = 0; n < vectors;) {
    const int64_t left = vectors - n, width = left == 4 ? 2 : left < 3 ? left : 3;
    for (int64_t m = 0; m < rows; m += kRows) {
      const Strided block{a.data + m * a.row, a.row, a.depth};
      const float* const from = b + n * kLanes;
      float* const to = c + m * c_row + n * kLanes;
      if (width == 3) {
        multiply_block<Words, 3>(depth, block, from, b_row, to, c_row, add);
      } else if (width == 2) {
        multiply_block<Words, 2>(depth, block, from, b_row, to, c_row, add);
      } else {
        multiply_block<Words, 1>(depth, block, from, b_row, to, c_row, add);
      }
    }
    n += width;
  }
}

}  // namespace heddle::kernels::host::attention
