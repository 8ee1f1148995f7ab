// Products of e4m3 numbers on Hopper's own instructions. As in wgmma_kernels.cu blocks go from tile to tile, one
// warp copies 128 bytes of k of both operands at a time, up to six stages ahead, and two warpgroups multiply 64
// rows each by 128 columns: four wgmma of 32 in k make the sums of one block of k, which are scaled and added in
// fp32 while the other warpgroup multiplies. Both operands lie by k, the only way that wgmma takes bytes. What is
// copied beyond K is zeros, and beyond a group's rows or columns others', which are multiplied and not stored.
#include "heddle/kernels/cuda/hopper/fp8_wgmma_kernels.h"
#include "heddle/kernels/cuda/hopper/instructions.h"
#include "heddle/kernels/cuda/products/fp8_tile.h"

namespace heddle::kernels::cuda {

namespace {

/// c[64, 128] (+)= a·b over 32 of k.
HEDDLE_DEVICE void multiply(float (&c)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
        "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
        "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
        "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
        "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
        "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
        "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}
/// What the instruction has written is not read before this.
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
