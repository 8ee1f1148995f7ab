// The host's side of wgmma_kernels.h.
#include "heddle/device/cuda/cuda_check.h"
#include "heddle/kernels/cuda/backend.h"
#include "heddle/kernels/cuda/hopper/processors.h"
#include "heddle/kernels/cuda/hopper/wgmma_kernels.h"

namespace heddle::kernels::cuda {

namespace {

/// Boxes of `box_rows` × 64 of a [rows, columns] tensor of bf16.
CUtensorMap map_of(const void* tensor, int64_t rows, int64_t columns, int box_rows) {
  CUtensorMap map;
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitch[] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  device::check_driver(
      device::driver().tensor_map(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(tensor), dims, pitch,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "describing a tensor");
  return map;
}

}  // namespace

bool hopper_grouped_rows(const ProductArgs& args, bool b_by_k, void* stream) {
  const int processors = processors_for(HopperKernel::rows);
  if (processors == 0) return false;
  // Tensor copies want rows of whole 16 bytes; what follows an expert's last k must not be another's first.
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (args.K == 0 || args.K % kWgmmaK != 0 || args.N % 8 != 0 || !aligned(args.a) || !aligned(args.b) ||
      !aligned(args.c)) {
    return false;
  }
  WgmmaArgs wgmma;
  wgmma.product = args;
  wgmma.a = map_of(args.a, args.M, args.K, kWgmmaM);
  wgmma.b = b_by_k ? map_of(args.b, args.groups * args.K, args.N, kWgmmaK)
                   : map_of(args.b, args.groups * args.N, args.K, kWgmmaN);
  launch(b_by_k ? product_wgmma<true> : product_wgmma<false>,
         {.blocks_x =
              hopper_blocks(blocks_for(args.N, kWgmmaN) * (blocks_for(args.M, kWgmmaM) + args.groups), processors),
          .threads = kWgmmaThreads,
          .shared_bytes = kWgmmaSharedBytes},
         wgmma, stream);
  return true;
}

}  // namespace heddle::kernels::cuda
