// The word of the AVX-512 attention kernels, which are written once for three kinds of it. A word is 32 bits of a
// packed operand, held as a float that nothing computes with but `multiply`:
//
//   Fp32          a number                              operands f32,  one fused multiply-add a word
//   Bf16Widened   a number                              operands bf16, widened when they are packed
//   Bf16Pairs     two neighbours along the summed dim   operands bf16, vdpbf16ps: two products a word
//
// Bf16Pairs rounds probabilities and their gradients to bf16 before the second products, as the tile kernels do;
// vdpbf16ps takes denormals as zero and rounds after each of its two products.
#pragma once

#include <array>
#include <cstdint>

#include "heddle/base/dtype.h"
#include "heddle/kernels/host/attention/attention_exp.h"
#include "heddle/kernels/host/attention/attention_problem.h"

namespace heddle::kernels::host::attention {

constexpr int kLanes = 16;

constexpr __mmask16 lanes_below(int64_t count) { return static_cast<__mmask16>(bits_below(count)); }

HEDDLE_AVX512_INLINE __m512 widen(__m256i bf16s) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16s), 16));
}

struct Fp32 {
  using Element = float;
  static constexpr int64_t kPer = 1;  // elements a word
  /// 16 words of elements that lie next to each other; zero from `count` elements on.
  HEDDLE_AVX512_INLINE static __m512 load_words(const float* from, int64_t count) {
    return _mm512_maskz_loadu_ps(lanes_below(count), from);
  }
  /// 16 elements as floats; zero from `count` on.
  HEDDLE_AVX512_INLINE static __m512 load(const float* from, int64_t count) { return load_words(from, count); }
  HEDDLE_AVX512_INLINE static void store(float* to, int64_t count, __m512 x) {
    _mm512_mask_storeu_ps(to, lanes_below(count), x);
  }
  HEDDLE_AVX512_INLINE static __m512 multiply(__m512 a, __m512 b, __m512 sum) { return _mm512_fmadd_ps(a, b, sum); }
  HEDDLE_AVX512_INLINE static __m512 exp2(__m512 t) { return exp2_close(t); }
};

struct Bf16Widened {
  using Element = bf16;
  static constexpr int64_t kPer = 1;
  HEDDLE_AVX512_INLINE static __m512 load_words(const bf16* from, int64_t count) { return load(from, count); }
  HEDDLE_AVX512_INLINE static __m512 load(const bf16* from, int64_t count) {
    return widen(_mm256_maskz_loadu_epi16(lanes_below(count), from));
  }
  /// Rounds to nearest even, in integers; a NaN stays one.
  HEDDLE_AVX512_INLINE static void store(bf16* to, int64_t count, __m512 x) {
    const __m512i word = _mm512_castps_si512(x), upper = _mm512_srli_epi32(word, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7fff)), odd), 16);
    rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), upper, _mm512_set1_epi32(0x40));
    _mm256_mask_storeu_epi16(to, lanes_below(count), _mm512_cvtepi32_epi16(rounded));
  }
  HEDDLE_AVX512_INLINE static __m512 multiply(__m512 a, __m512 b, __m512 sum) { return _mm512_fmadd_ps(a, b, sum); }
  HEDDLE_AVX512_INLINE static __m512 exp2(__m512 t) { return exp2_close(t); }
};

struct Bf16Pairs {
  using Element = bf16;
  static constexpr int64_t kPer = 2;
  HEDDLE_AVX512_INLINE static __m512 load_words(const bf16* from, int64_t count) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(bits_below(count), from));
  }
  HEDDLE_AVX512_INLINE static __m512 load(const bf16* from, int64_t count) {
    return widen(_mm256_maskz_loadu_epi16(lanes_below(count), from));
  }
  HEDDLE_AVX512_INLINE static void store(bf16* to, int64_t count, __m512 x) {
    _mm256_mask_storeu_epi16(to, lanes_below(count), (__m256i)_mm512_cvtneps_pbh(x));
  }
  HEDDLE_AVX512_INLINE static __m512 multiply(__m512 a, __m512 b, __m512 sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
  }
  HEDDLE_AVX512_INLINE static __m512 exp2(__m512 t) { return exp2_coarse(t); }
  /// 32 neighbouring floats of a row as 16 words.
  HEDDLE_AVX512_INLINE static __m512 pairs_across(__m512 low, __m512 high) {
    return (__m512)_mm512_cvtne2ps_pbh(high, low);
  }
  /// Two rows of 32 bf16 as words of (first, second) in each column: columns 16·half and on.
  template <int half>
  HEDDLE_AVX512_INLINE static __m512 pairs_down(__m512 first, __m512 second) {
    alignas(64) static constexpr std::array<uint16_t, 32> kOrder = [] {
      std::array<uint16_t, 32> order{};
      for (size_t i = 0; i < 16; ++i) {
        order[2 * i] = static_cast<uint16_t>(16 * half + i);
        order[2 * i + 1] = static_cast<uint16_t>(32 + 16 * half + i);
      }
      return order;
    }();
    return _mm512_castsi512_ps(_mm512_permutex2var_epi16(
        _mm512_castps_si512(first), _mm512_load_si512(kOrder.data()), _mm512_castps_si512(second)));
  }
};

}  // namespace heddle::kernels::host::attention
