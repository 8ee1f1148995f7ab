// Products of e4m3 numbers whose blocks of 128 share a scale, tile by tile: the work of a warpgroup around its
// matrix instruction. The instruction sums 128 products of a block. Here each sum is scaled and added in fp32,
// because the tensor cores add fp8 products in fewer bits than fp32 has (DeepSeek-V3 Technical Report, arXiv
// 2412.19437, section 3.3.2).
#pragma once

#include "heddle/kernels/cuda/fp8_product.h"
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/products/row_store.h"
#include "heddle/kernels/cuda/products/warp_tiles.h"

namespace heddle::kernels::cuda {

/// The rows of a tile; `rows` less than one where there are no so many tiles.
struct Fp8Tile {
  int64_t group, first, rows;  // of c, from the tile's first row to the group's end
};
/// The tile of a number. A whole warp calls it.
HEDDLE_DEVICE Fp8Tile fp8_tile(const ProductArgs& p, int64_t number) {
  if (p.offsets == nullptr) return {0, number * kFp8TileM, p.M - number * kFp8TileM};
  const RowTile found = tile_of_warp(p.offsets, p.groups, kFp8TileM, number);
  if (found.group < 0) return {0, 0, 0};
  const int64_t first = p.offsets[found.group] + static_cast<int64_t>(found.tile) * kFp8TileM;
  return {found.group, first, p.offsets[found.group + 1] - first};
}

HEDDLE_DEVICE float fp8_scale(uint8_t byte) {
  return byte == 255 ? not_a_number() : float_of_word(static_cast<uint32_t>(byte) << 23);
}

/// The tile's rows of one warp, `row` of it on, and the 128 columns from n0 on, a multiple of 128. `multiply(t,
/// sums)` gives the sums over block t of k, without scales.
template <class Multiply>
HEDDLE_DEVICE void fp8_multiply_rows(const Fp8ProductArgs& args, const Fp8Tile& tile, int64_t n0, int row, int lane,
                                     Bf16* stored, Multiply multiply) {
  const ProductArgs& p = args.product;
  const int64_t rows_of_b = (p.N + kFp8Block - 1) / kFp8Block;
  const uint8_t* const b_scales = args.b_scales + (tile.group * rows_of_b + n0 / kFp8Block) * args.blocks;
  // Rows that are not to be stored take the scales of one that is.
  const uint8_t* a_scales[2];
  HEDDLE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int64_t own = min(static_cast<int64_t>(row + lane / 4 + half * 8), tile.rows - 1);
    a_scales[half] = args.a_scales + (tile.first + own) * args.blocks;
  }
  float sums[64];
  HEDDLE_UNROLL
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  for (int t = 0; t < static_cast<int>(args.blocks); ++t) {
    float products[64];
    const float by_row[2] = {fp8_scale(a_scales[0][t]), fp8_scale(a_scales[1][t])},
                by_column = fp8_scale(b_scales[t]);
    multiply(t, products);
    // One scale after the other: the product of two may be too large for fp32 where what they scale is zero.
    HEDDLE_UNROLL
    for (int i = 0; i < 64; ++i) sums[i] = fmaf(products[i] * by_row[i % 4 / 2], by_column, sums[i]);
  }
  store_columns(p, {tile.first + row, tile.rows - row, lane, stored}, sums, n0);
}

}  // namespace heddle::kernels::cuda
