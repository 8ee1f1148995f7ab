// Attention and its gradient share scores, and accumulators of a warp's rows.
//
// A warp (a tile's 32 lanes, kernels/cuda/products/tile.h) adds up 16 rows and the columns of one slice of a head.
// Where a head has several slices, the warps of the same rows divide their scores among them. Each makes those of a
// part of the other side's rows. All read them from shared memory.
#pragma once

#include "heddle/kernels/cuda/attention/attention_kernels.h"
#include "heddle/kernels/cuda/attention/seen_rows.h"
#include "heddle/kernels/cuda/products/tile.h"

namespace heddle::kernels::cuda {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.69314718055994531f;
constexpr int kValueTiles = kSliceColumns / 32;
/// The accumulators of queries or keys, of 32 columns each; one slice takes up to 192 columns.
constexpr int head_tiles(int slices) { return slices == 1 ? 6 : kSliceColumns / 32; }

/// A score of a product of a query and a key, in units of log₂ e; `slope` is what a cap leaves of its gradient.
HEDDLE_DEVICE float score_of(float product, float scale, float cap, float& slope) {
  slope = 1;
  if (!(cap > 0)) return product * (scale * kLog2E);
  const float bent = tanhf(product * scale / cap);
  slope = 1 - bent * bent;
  return cap * kLog2E * bent;
}

template <int N, int NT>
HEDDLE_DEVICE void clear(float (&c)[N][1][NT][4]) {
  HEDDLE_UNROLL
  for (int n = 0; n < N; ++n) {
    HEDDLE_UNROLL
    for (int i = 0; i < NT; ++i) c[n][0][i][0] = c[n][0][i][1] = c[n][0][i][2] = c[n][0][i][3] = 0;
  }
}

/// c += a·b for 16 rows of a and all columns of b, which lies by k, 32 columns at a time.
template <class X, int N>
HEDDLE_DEVICE void multiply_wide(float (&c)[N][1][4][4], const X* a, int a_pitch, const X* b, int b_pitch, int K,
                                 int64_t columns) {
  HEDDLE_UNROLL
  for (int n = 0; n < N; ++n) {
    if (n * 32 < columns) multiply_tile<false, true>(c[n], a, a_pitch, b + n * 32, b_pitch, K);
  }
}

/// Waits for the warps that share a tile of scores.
template <int kSlices>
HEDDLE_DEVICE void wait_for_scores() {
  if constexpr (kSlices == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

}  // namespace heddle::kernels::cuda
