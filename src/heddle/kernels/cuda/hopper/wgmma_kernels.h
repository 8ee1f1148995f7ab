// Products of experts on Hopper's own instructions: tensor copies (TMA) and wgmma. Compute capability 9.0 only.
#pragma once

#include <cuda.h>

#include "heddle/kernels/cuda/products/product_kernels.h"
#include "heddle/kernels/cuda/products/store_pitch.h"

namespace heddle::kernels::cuda {

constexpr int kWgmmaM = 128, kWgmmaN = 256, kWgmmaK = 64, kWgmmaStages = 4;
constexpr int kWgmmaConsumers = 256, kWgmmaThreads = kWgmmaConsumers + 32;
constexpr int64_t kWgmmaStageBytes = (kWgmmaM + kWgmmaN) * kWgmmaK * 2;
/// Dynamic shared memory: stages, aligned to 1024 bytes, two barriers for each, and 16 rows of results a warp.
constexpr int64_t kWgmmaSharedBytes =
    1024 + kWgmmaStages * (kWgmmaStageBytes + 16) + kWgmmaConsumers / 32 * 16 * kStorePitch * 2;

struct WgmmaArgs {
  CUtensorMap a,
      b;  // of [rows, K], boxes of kWgmmaM × 64; of all experts' [N, K] (kWgmmaN × 64) or [K, N] (64 × 64)
  ProductArgs product;
};

/// c = a·b, cut by rows; K is a multiple of kWgmmaK, N of 8. b_by_k as in product_kernels.h. Any number of blocks.
#ifdef __CUDACC__
#define HEDDLE_CONSTANT const __grid_constant__
#else
#define HEDDLE_CONSTANT
#endif
template <bool b_by_k>
HEDDLE_KERNEL void product_wgmma(HEDDLE_CONSTANT WgmmaArgs args);

}  // namespace heddle::kernels::cuda
