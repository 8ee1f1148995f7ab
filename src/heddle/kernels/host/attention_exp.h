// Exponential and logarithm of 16 floats, for softmax.
//
// exp: range reduction by Cody and Waite (x = n·ln 2 + r, ln 2 in two parts), a minimax polynomial in r, and n
// added to the exponent bits. Arguments below -69 (2^-100) are raised to it: such a probability adds nothing to a
// sum, and products with it stay clear of the slow denormals. Arguments above 87 are not expected. NaN stays NaN.
#pragma once

// GCC 12 takes the undefined vectors inside its own wrappers for a mistake of ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#define HEDDLE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")))
#define HEDDLE_AVX512_INLINE HEDDLE_AVX512 __attribute__((always_inline)) inline

namespace heddle::kernels::host::attention {

/// 1.5 · 2^23: adding it rounds a float to an integer, which then stands in the low bits.
constexpr float kRounder = 0x1.8p23f;

HEDDLE_AVX512_INLINE __m512 scale_by_power(__m512 y, __m512 rounded) {
  return _mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(y), _mm512_slli_epi32(_mm512_castps_si512(rounded), 23)));
}

/// 2^t with relative error 7.5e-5, a fortieth of the rounding to bf16 that follows. Exactly 0 for minus infinity.
/// vreduceps gives the fraction t - ⌊t⌋ and vscalefps multiplies by 2^⌊t⌋: a third faster than by integer
/// arithmetic.
HEDDLE_AVX512_INLINE __m512 exp2_coarse(__m512 t) {
  constexpr int kDownQuietly = 0x09;  // round towards minus infinity, no precision exception
  const __m512 f = _mm512_reduce_ps(t, kDownQuietly);
  __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(0.07802452f), f, _mm512_set1_ps(0.22606716f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.69583354f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.99992522f));
  return _mm512_scalef_ps(y, t);
}

/// e^x, within 2 units in the last place.
HEDDLE_AVX512_INLINE __m512 exp_close(__m512 x) {
  const __m512 rounder = _mm512_set1_ps(kRounder);
  x = _mm512_max_ps(_mm512_set1_ps(-69.0f), x);
  const __m512 rounded = _mm512_fmadd_ps(x, _mm512_set1_ps(1.44269504f), rounder);
  const __m512 n = _mm512_sub_ps(rounded, rounder);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);  // exact: few bits in n and in this part of ln 2
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(0.001383684554f), r, _mm512_set1_ps(0.008374815802f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.041668225578f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.166664201699f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.499999920798f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.000000036323f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
  return scale_by_power(y, rounded);
}

/// ln x for positive normal x: x = 2^e·m with m in [3/4, 3/2), ln m = 2 artanh z with z = (m - 1)/(m + 1).
HEDDLE_AVX512_INLINE __m512 log_close(__m512 x) {
  // The interval of getmant that straddles 1: m in [3/4, 3/2).
  const __m512 m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_nan);
  const __m512 e = _mm512_getexp_ps(_mm512_div_ps(x, m));  // x / m is a power of two, exactly
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 z = _mm512_div_ps(_mm512_sub_ps(m, one), _mm512_add_ps(m, one));
  const __m512 w = _mm512_mul_ps(z, z);
  __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(2.0f / 9), w, _mm512_set1_ps(2.0f / 7));
  y = _mm512_fmadd_ps(y, w, _mm512_set1_ps(2.0f / 5));
  y = _mm512_fmadd_ps(y, w, _mm512_set1_ps(2.0f / 3));
  y = _mm512_fmadd_ps(_mm512_mul_ps(y, w), z, _mm512_add_ps(z, z));
  return _mm512_fmadd_ps(e, _mm512_set1_ps(0.69314718f), y);
}

}  // namespace heddle::kernels::host::attention
