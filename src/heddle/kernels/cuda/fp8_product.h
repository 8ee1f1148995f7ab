// Arguments of the kernel for a product of e4m3 numbers whose blocks of 128 share a scale.
#pragma once

#include "heddle/kernels/cuda/fp8_kernels.h"
#include "heddle/kernels/cuda/products/product_kernels.h"

namespace heddle::kernels::cuda {

constexpr int kFp8TileM = 128, kFp8TileN = 128;  // of a block; a warpgroup has 64 of the rows

struct Fp8ProductArgs {
  /// c[M, N] = a·bᵀ, a bytes [M, K], b bytes [groups, N, K]; rows of a and c are cut by offsets, or not. N is a
  /// multiple of 8.
  ProductArgs product;
  const uint8_t *a_scales, *b_scales;  // [M, blocks], [groups, ⌈N ÷ 128⌉, blocks]
  int64_t blocks;                      // ⌈K ÷ 128⌉
};

}  // namespace heddle::kernels::cuda
