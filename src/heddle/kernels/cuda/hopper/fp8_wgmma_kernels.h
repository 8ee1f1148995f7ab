// Products of e4m3 numbers in blocks that share a scale, on Hopper's own instructions. Compute capability 9.0 only.
#pragma once

#include <cuda.h>

#include "heddle/kernels/cuda/fp8_product.h"
#include "heddle/kernels/cuda/hopper/wgmma_kernels.h"

namespace heddle::kernels::cuda {

constexpr int kFp8WgmmaStages = 6;
constexpr int64_t kFp8StageBytes = (kFp8TileM + kFp8TileN) * kFp8Block;
/// Dynamic shared memory: stages, aligned to 1024 bytes, two barriers for each, and 16 rows of results a warp.
constexpr int64_t kFp8SharedBytes =
    1024 + kFp8WgmmaStages * (kFp8StageBytes + 16) + kWgmmaConsumers / 32 * 16 * kStorePitch * 2;

struct Fp8WgmmaArgs {
  CUtensorMap a, b;  // of bytes [M, K], and of all groups' [N, K]; boxes of 128 × 128
  Fp8ProductArgs product;
};

/// c = a·bᵀ, see Fp8ProductArgs. Any number of blocks, of kWgmmaThreads.
HEDDLE_KERNEL void product_wgmma_fp8(HEDDLE_CONSTANT Fp8WgmmaArgs args);

}  // namespace heddle::kernels::cuda
