// Products of experts on Hopper's own instructions. As many blocks as the device has multiprocessors go from tile
// to tile, those of the same rows side by side. One warp copies tiles of 64 in k with the tensor copy engine, up to
// four stages ahead, those of the next tile too while this one is stored. Two warpgroups multiply them, 64 rows by
// 256 columns each. Both tiles lie in shared memory in rows of 128 bytes with the engine's swizzle. They lie by k
// (a, and b where it lies [N, K]) or by column (b where it lies [K, N], in four boxes of 64 columns). What a tile
// holds of another expert's rows or columns is multiplied and not stored.
//
// Instructions and descriptors: NVIDIA, PTX ISA 8.x, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensor
// copies"; layouts by k and by column as there.
#include "heddle/kernels/cuda/hopper/instructions.h"
#include "heddle/kernels/cuda/hopper/wgmma_kernels.h"
#include "heddle/kernels/cuda/products/row_store.h"
#include "heddle/kernels/cuda/products/warp_tiles.h"

namespace heddle::kernels::cuda {

namespace {

/// c[64, 128] (+)= a·b over 16 of k.
template <bool b_by_k>
HEDDLE_DEVICE void multiply(float (&c)[64], uint64_t a, uint64_t b, bool add) {
  HEDDLE_WGMMA_N128("m64n128k16.f32.bf16.bf16", "1, 1, 0, %67", b_by_k ? 1 : 0);
}

}  // namespace

template <bool b_by_k>
HEDDLE_KERNEL void __launch_bounds__(kWgmmaThreads, 1) product_wgmma(HEDDLE_CONSTANT WgmmaArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const ProductArgs& p = args.product;
  const uint32_t stages = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t full = stages + kWgmmaStages * kWgmmaStageBytes, empty = full + 8 * kWgmmaStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kWgmmaStages; ++s) {
      make_barrier(full + 8 * s, 1);
      make_barrier(empty + 8 * s, kWgmmaConsumers / kWarp);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int tiles_k = static_cast<int>(p.K / kWgmmaK), tiles_n = static_cast<int>((p.N + kWgmmaN - 1) / kWgmmaN);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint32_t step = 0;  // of k, over all tiles: both sides count alike

  if (threadIdx.x >= kWgmmaConsumers) {
    for (int64_t tile = blockIdx.x;; tile += gridDim.x) {
      const RowTile found = tile_of_warp(p.offsets, p.groups, kWgmmaM, tile / tiles_n);
      if (found.group < 0) return;
      if (lane == 0) {
        const int32_t m0 = p.offsets[found.group] + found.tile * kWgmmaM;
        const int32_t n0 = static_cast<int32_t>(tile % tiles_n) * kWgmmaN;
        for (int t = 0; t < tiles_k; ++t) {
          const uint32_t stage = (step + t) % kWgmmaStages;
          const uint32_t tile_a = stages + stage * kWgmmaStageBytes, tile_b = tile_a + kWgmmaM * kWgmmaK * 2;
          const int32_t k = t * kWgmmaK;
          wait_for(empty + 8 * stage, ((step + t) / kWgmmaStages & 1) ^ 1);
          expect_bytes(full + 8 * stage, kWgmmaStageBytes);
          copy_box(tile_a, &args.a, k, m0, full + 8 * stage);
          if constexpr (b_by_k) {
            const auto first = static_cast<int32_t>(found.group * p.K);
            for (int n = 0; n < kWgmmaN; n += 64) {
              copy_box(tile_b + n * kWgmmaK * 2, &args.b, n0 + n, first + k, full + 8 * stage);
            }
          } else {
            copy_box(tile_b, &args.b, k, static_cast<int32_t>(found.group * p.N) + n0, full + 8 * stage);
          }
        }
      }
      step += tiles_k;
      __syncwarp();
    }
  }

  const int warpgroup = static_cast<int>(threadIdx.x) / 128, warp = static_cast<int>(threadIdx.x) / kWarp % 4;
  Bf16* const stored = reinterpret_cast<Bf16*>(shared + (empty + 8 * kWgmmaStages - shared_address(shared))) +
                       static_cast<int>(threadIdx.x) / kWarp * 16 * kStorePitch;
  for (int64_t tile = blockIdx.x;; tile += gridDim.x) {
    const RowTile found = tile_of_warp(p.offsets, p.groups, kWgmmaM, tile / tiles_n);
    if (found.group < 0) return;
    const int32_t begin = p.offsets[found.group], rows = p.offsets[found.group + 1] - begin;
    const int32_t m0 = found.tile * kWgmmaM + warpgroup * 64 + warp * 16;
    const int32_t n0 = static_cast<int32_t>(tile % tiles_n) * kWgmmaN;
    float left[64], right[64];  // of 128 columns each
    for (int t = 0; t < tiles_k; ++t, ++step) {
      const uint32_t stage = step % kWgmmaStages;
      const uint32_t tile_a = stages + stage * kWgmmaStageBytes + warpgroup * 64 * kWgmmaK * 2;
      const uint32_t tile_b = stages + stage * kWgmmaStageBytes + kWgmmaM * kWgmmaK * 2;
      wait_for(full + 8 * stage, step / kWgmmaStages & 1);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      HEDDLE_UNROLL
      for (int k = 0; k < kWgmmaK; k += 16) {
        // On by 16 of k: 32 bytes within the rows, or 16 rows of 128 bytes. The right half is 128 rows, or two
        // boxes, on.
        const uint64_t a = tile_at(tile_a + k * 2, 0);
        const uint32_t b = tile_b + (b_by_k ? k * 128 : k * 2), next = b_by_k ? 64 * kWgmmaK * 2 : 0;
        multiply<b_by_k>(left, a, tile_at(b, next), t > 0 || k > 0);
        multiply<b_by_k>(right, a, tile_at(b + 128 * kWgmmaK * 2, next), t > 0 || k > 0);
      }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      // The products of the step before have ended: its stage may be filled again.
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (t > 0 && lane == 0) arrive(empty + 8 * ((step - 1) % kWgmmaStages));
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (lane == 0) arrive(empty + 8 * ((step - 1) % kWgmmaStages));

    const StoredRows rows_of_warp{begin + m0, rows - m0, lane, stored};
    store_columns(p, rows_of_warp, left, n0);
    store_columns(p, rows_of_warp, right, n0 + 128);
  }
}

template HEDDLE_KERNEL void product_wgmma<false>(HEDDLE_CONSTANT WgmmaArgs args);
template HEDDLE_KERNEL void product_wgmma<true>(HEDDLE_CONSTANT WgmmaArgs args);

}  // namespace heddle::kernels::cuda
