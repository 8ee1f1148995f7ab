// Bringing operands into the panels and strips of the AVX-512 engines; see gemm_avx512_block-inl.h for their forms
// and for how this file is included. Numbers beyond the edges become zeros and are not read.
#pragma once

#include "heddle/kernels/host/gemm/gemm_avx512_block-inl.h"
#include "heddle/kernels/host/transpose_words.h"

namespace heddle::kernels::host::avx512_engine {
namespace {

/// 16 numbers as fp32; lanes at `count` and beyond are zero and not read.
HEDDLE_512 __m512 load_16(const float* from, int64_t count) {
  return _mm512_maskz_loadu_ps(first_lanes_16(count), from);
}
HEDDLE_512 __m512 load_16(const uint16_t* from, int64_t count) {
  const __m256i halves = _mm256_maskz_loadu_epi16(first_lanes_16(count), from);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/// 32 numbers as bf16.
HEDDLE_512 __m512i load_32(const uint16_t* from, int64_t count) {
  return _mm512_maskz_loadu_epi16(first_lanes_32(count), from);
}
HEDDLE_512 __m512i load_32(const float* from, int64_t count) {
  return narrow(load_16(from, count), load_16(from + 16, count - 16));
}

/// 16 words of a row, from number `at` on, of which `count` are there: fp32 numbers or pairs.
template <Form kForm, class T>
HEDDLE_512 __m512i load_words(const T* from, int64_t count) {
  if constexpr (kForm == Form::floats) {
    return _mm512_castps_si512(load_16(from, count));
  } else {
    return load_32(from, count);
  }
}

/// A panel's steps for the depths depth_begin .. depth_end, of B given as rows along the depth: row c, `columns` of
/// them, is column c of the panel.
template <Form kForm, class T>
HEDDLE_512 void pack_turned(const T* rows, int64_t stride, int64_t depth, int64_t columns, uint32_t* out) {
  constexpr int64_t kDeep = depth_of_step(kForm);
  for (int64_t d = 0; d < depth; d += 16 * kDeep, out += 16 * kPanelColumns) {
    const int64_t steps = (depth - d + kDeep - 1) / kDeep;
    for (int64_t half = 0; half < kPanelColumns; half += 16) {
      __m512i words[16];
#pragma GCC unroll 16
      for (int64_t i = 0; i < 16; ++i) {
        words[i] = half + i < columns ? load_words<kForm>(rows + (half + i) * stride + d, depth - d)
                                      : _mm512_setzero_si512();
      }
      transpose_words(words);
      if (steps >= 16) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kPanelColumns + half, words[i]);
      } else {
        for (int64_t i = 0; i < steps; ++i) _mm512_storeu_si512(out + i * kPanelColumns + half, words[i]);
      }
    }
  }
}

/// Packs B given as rows across: row d holds the columns.
template <Form kForm, class T>
HEDDLE_512 void pack_down(const T* rows, int64_t stride, int64_t depth, int64_t columns, uint32_t* out) {
  if constexpr (kForm == Form::floats) {
    for (int64_t d = 0; d < depth; ++d, rows += stride, out += kPanelColumns) {
      _mm_prefetch(rows + 16 * stride, _MM_HINT_T0);
      _mm_prefetch(rows + kPanelColumns, _MM_HINT_T1);
      if constexpr (sizeof(T) == 4) {
        _mm_prefetch(rows + 16 * stride + 16, _MM_HINT_T0);
        _mm_prefetch(rows + kPanelColumns + 16, _MM_HINT_T1);
      }
      _mm512_storeu_ps(reinterpret_cast<float*>(out), load_16(rows, columns));
      _mm512_storeu_ps(reinterpret_cast<float*>(out) + 16, load_16(rows + 16, columns - 16));
    }
  } else {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int64_t d = 0; d < depth; d += 2, rows += 2 * stride, out += kPanelColumns) {
      _mm_prefetch(rows + 16 * stride, _MM_HINT_T0);
      _mm_prefetch(rows + 17 * stride, _MM_HINT_T0);
      _mm_prefetch(rows + kPanelColumns, _MM_HINT_T1);
      _mm_prefetch(rows + stride + kPanelColumns, _MM_HINT_T1);
      const __m512i even = load_32(rows, columns);
      const __m512i odd = d + 1 < depth ? load_32(rows + stride, columns) : _mm512_setzero_si512();
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(even, low, odd));
      _mm512_storeu_si512(out + 16, _mm512_permutex2var_epi16(even, high, odd));
    }
  }
}

/// Packs a matrix of either type: the panel's words for the depths depth_begin .. depth_end and the columns from
/// `column` on, of which `columns` are there. `turned`: the matrix' rows run along the depth.
template <Form kForm>
HEDDLE_512 void pack_panel(const Rows& m, bool turned, int64_t depth_begin, int64_t depth_end, int64_t column,
                           int64_t columns, uint32_t* out) {
  const int64_t at = turned ? column * m.stride + depth_begin : depth_begin * m.stride + column;
  const int64_t depth = depth_end - depth_begin;
  const auto pack = [&](const auto* from) __attribute__((target(HEDDLE_512_FEATURES))) {
    if (turned) {
      pack_turned<kForm>(from + at, m.stride, depth, columns, out);
    } else {
      pack_down<kForm>(from + at, m.stride, depth, columns, out);
    }
  };
  if (m.dtype == Dtype::bf16) {
    pack(static_cast<const uint16_t*>(m.data));
  } else {
    pack(static_cast<const float*>(m.data));
  }
}

/// The first 12 of 16 words.
HEDDLE_512 void store_12(uint32_t* out, __m512i words) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_castsi512_si256(words));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 8), _mm512_extracti32x4_epi32(words, 2));
}

/// A strip in fp32 whose rows run along the depth: out[d][r] = row r at depth d, with zeros up to an even depth.
template <class T>
HEDDLE_512 void strip_turned(const T* a, int64_t stride, int64_t rows, int64_t depth, uint32_t* out) {
  for (int64_t d = 0; d < depth; d += 16, out += 16 * kStripRows) {
    __m512i words[16];
#pragma GCC unroll 16
    for (int64_t r = 0; r < 16; ++r) {
      words[r] = r < rows ? load_words<Form::floats>(a + r * stride + d, depth - d) : _mm512_setzero_si512();
    }
    transpose_words(words);
    const int64_t deep = depth - d < 16 ? depth - d : 16;
    for (int64_t i = 0; i < deep + deep % 2; ++i) store_12(out + i * kStripRows, words[i]);
  }
}

/// A strip of a matrix whose rows t are the depth, of its columns 0 .. columns: fp32 numbers [t][12] (zeros up to a
/// whole step), or pairs [t / 2][12].
template <Form kForm, class T>
HEDDLE_512 void strip_down(const T* a, int64_t stride, int64_t depth, int64_t columns, uint32_t* out) {
  const __mmask16 lanes = first_lanes_16(columns);
  for (int64_t d = 0; d < depth; d += depth_of_step(kForm), a += depth_of_step(kForm) * stride) {
    if constexpr (kForm == Form::pairs) {
      const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, a));
      const __m512i odd = d + 1 < depth ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, a + stride))
                                        : _mm512_setzero_si512();
      store_12(out, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
      out += kStripRows;
    } else {
      store_12(out, _mm512_castps_si512(load_16(a, columns)));
      out += kStripRows;
      if constexpr (kForm == Form::widened) {
        store_12(out, d + 1 < depth ? _mm512_castps_si512(load_16(a + stride, columns)) : _mm512_setzero_si512());
        out += kStripRows;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::kernels::host::avx512_engine
