// Exponential and logarithm of 16 floats, for softmax. The exponential is to base 2: scores come in units of log2.
//
// 2^t = 2^⌊t⌋ · 2^f with f = t − ⌊t⌋: vreduceps gives f, a minimax polynomial 2^f, and vscalefps multiplies by
// 2^⌊t⌋, a third faster than by integer arithmetic. NaN stays NaN.
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

constexpr int kDownQuietly = 0x09;  // of vreduceps: round towards minus infinity, no precision exception

/// 2^t with relative error 7.5e-5, a fortieth of the rounding to bf16 that follows. Exactly 0 for minus infinity.
HEDDLE_AVX512_INLINE __m512 exp2_coarse(__m512 t) {
  const __m512 f = _mm512_reduce_ps(t, kDownQuietly);
  __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(0.07802452f), f, _mm512_set1_ps(0.22606716f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.69583354f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.99992522f));
  return _mm512_scalef_ps(y, t);
}

/// 2^t within 2 units in the last place, and exactly 0 up to t = -100: such a probability adds nothing to a sum,
/// and products with it stay clear of the slow denormals.
HEDDLE_AVX512_INLINE __m512 exp2_close(__m512 t) {
  const __m512 f = _mm512_reduce_ps(t, kDownQuietly);
  __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(2.161291489e-4f), f, _mm512_set1_ps(1.246784697e-3f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(9.675451554e-3f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.548528209e-2f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.402293086e-1f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.931470633e-1f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, _mm512_set1_ps(-100.0f), _CMP_NLE_UQ), y, t);
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
