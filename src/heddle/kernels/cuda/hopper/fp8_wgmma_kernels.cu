// Products of e4m3 numbers on Hopper's own instructions. As in wgmma_kernels.cu blocks go from tile to tile. One
// warp copies 128 bytes of k of both operands at a time, up to six stages ahead. Two warpgroups multiply 64 rows
// each by 128 columns. Four wgmma of 32 in k make the sums of one block of k. These are scaled and added in fp32
// while the other warpgroup multiplies. Both operands lie by k, the only way that wgmma takes bytes. What is copied
// beyond K is zeros, and beyond a group's rows or columns others', which are multiplied and not stored.
#include "heddle/kernels/cuda/fp8_tile.h"
#include "heddle/kernels/cuda/hopper/fp8_wgmma_kernels.h"
#include "heddle/kernels/cuda/hopper/instructions.h"

namespace heddle::kernels::cuda {

namespace {

/// c[64, 128] (+)= a·b over 32 of k.
HEDDLE_DEVICE void multiply(float (&c)[64], uint64_t a, uint64_t b, bool add) {
  HEDDLE_WGMMA_N128("m64n128k32.f32.e4m3.e4m3", "1, 1", 0);
}
/// Keeps results of the instruction from being read before this.
HEDDLE_DEVICE void hold(float (&c)[64]) {
  HEDDLE_UNROLL
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

}  // namespace

HEDDLE_KERNEL void __launch_bounds__(kWgmmaThreads, 1) product_wgmma_fp8(HEDDLE_CONSTANT Fp8WgmmaArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const ProductArgs& p = args.product.product;
  const uint32_t stages = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t full = stages + kFp8WgmmaStages * kFp8StageBytes, empty = full + 8 * kFp8WgmmaStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kFp8WgmmaStages; ++s) {
      make_barrier(full + 8 * s, 1);
      make_barrier(empty + 8 * s, kWgmmaConsumers / kWarp);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int tiles_k = static_cast<int>(args.product.blocks);
  const int64_t tiles_n = (p.N + kFp8TileN - 1) / kFp8TileN;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint32_t step = 0;  // of k, over all tiles: both sides count alike

  if (threadIdx.x >= kWgmmaConsumers) {
    for (int64_t number = blockIdx.x;; number += gridDim.x) {
      const Fp8Tile tile = fp8_tile(p, number / tiles_n);
      if (tile.rows < 1) return;
      if (lane == 0) {
        const auto m0 = static_cast<int32_t>(tile.first);
        const auto n0 = static_cast<int32_t>(tile.group * p.N + number % tiles_n * kFp8TileN);
        for (int t = 0; t < tiles_k; ++t) {
          const uint32_t stage = (step + t) % kFp8WgmmaStages, at = stages + stage * kFp8StageBytes;
          wait_for(empty + 8 * stage, ((step + t) / kFp8WgmmaStages & 1) ^ 1);
          expect_bytes(full + 8 * stage, kFp8StageBytes);
          copy_box(at, &args.a, t * kFp8Block, m0, full + 8 * stage);
          copy_box(at + kFp8TileM * kFp8Block, &args.b, t * kFp8Block, n0, full + 8 * stage);
        }
      }
      step += tiles_k;
      __syncwarp();
    }
  }

  const int warpgroup = static_cast<int>(threadIdx.x) / 128, warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  Bf16* const stored = reinterpret_cast<Bf16*>(shared + (empty + 8 * kFp8WgmmaStages - shared_address(shared))) +
                       static_cast<int>(threadIdx.x) / kWarp * 16 * kStorePitch;
  for (int64_t number = blockIdx.x;; number += gridDim.x) {
    const Fp8Tile tile = fp8_tile(p, number / tiles_n);
    if (tile.rows < 1) return;
    fp8_multiply_rows(args.product, tile, number % tiles_n * kFp8TileN, warpgroup * 64 + warp * 16, lane, stored,
                      [&](int t, float(&products)[64]) {
                        const uint32_t stage = (step + t) % kFp8WgmmaStages, at = stages + stage * kFp8StageBytes;
                        const uint32_t a = at + warpgroup * 64 * kFp8Block, b = at + kFp8TileM * kFp8Block;
                        wait_for(full + 8 * stage, (step + t) / kFp8WgmmaStages & 1);
                        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                        HEDDLE_UNROLL
                        for (int k = 0; k < kFp8Block; k += 32) {
                          multiply(products, tile_at(a + k, 0), tile_at(b + k, 0), k > 0);
                        }
                        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                        hold(products);
                        if (lane == 0) arrive(empty + 8 * stage);
                      });
    step += tiles_k;
  }
}

}  // namespace heddle::kernels::cuda
