// C[12,32] += A[depth,12]ᵀ · B[depth,32] for two instruction sets. Every element is one chain of multiply-adds in
// increasing depth; fused on AVX2 (which hence agrees with avx512 bit for bit), multiplied and then added on
// `portable`.
#include "heddle/kernels/host/gemm_block.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::kernels::host::fp32 {

#if defined(__x86_64__)
// Sixteen registers hold 6 × 16 of C; the block is done in four such parts.
[[gnu::target("avx2,fma")]] void block_avx2(int64_t depth, const float* a, const float* b, float* c) {
  for (int part = 0; part < 4; ++part) {
    const int row = part / 2 * 6, column = part % 2 * 16;
    const float* a_part = a + row;
    const float* b_part = b + column;
    float* c_part = c + row * 32 + column;
    __m256 left[6], right[6];
#pragma GCC unroll 6
    for (int r = 0; r < 6; ++r) {
      left[r] = _mm256_loadu_ps(c_part + r * 32);
      right[r] = _mm256_loadu_ps(c_part + r * 32 + 8);
    }
    for (int64_t d = 0; d < depth; ++d, a_part += kBlockRows, b_part += 32) {
      const __m256 b_left = _mm256_loadu_ps(b_part), b_right = _mm256_loadu_ps(b_part + 8);
#pragma GCC unroll 6
      for (int r = 0; r < 6; ++r) {
        const __m256 ar = _mm256_broadcast_ss(a_part + r);
        left[r] = _mm256_fmadd_ps(ar, b_left, left[r]);
        right[r] = _mm256_fmadd_ps(ar, b_right, right[r]);
      }
    }
#pragma GCC unroll 6
    for (int r = 0; r < 6; ++r) {
      _mm256_storeu_ps(c_part + r * 32, left[r]);
      _mm256_storeu_ps(c_part + r * 32 + 8, right[r]);
    }
  }
}
#else
void block_avx2(int64_t, const float*, const float*, float*) { internal_error("AVX2 on another processor"); }
#endif

void block_portable(int64_t depth, const float* a, const float* b, float* c) {
  for (int64_t r = 0; r < kBlockRows; ++r) {
    for (int64_t half = 0; half < 32; half += 16) {
      float sum[16];
      for (int64_t i = 0; i < 16; ++i) sum[i] = c[r * 32 + half + i];
      for (int64_t d = 0; d < depth; ++d) {
        const float ar = a[d * kBlockRows + r];
        for (int64_t i = 0; i < 16; ++i) sum[i] += ar * b[d * 32 + half + i];
      }
      for (int64_t i = 0; i < 16; ++i) c[r * 32 + half + i] = sum[i];
    }
  }
}

}  // namespace heddle::kernels::host::fp32
