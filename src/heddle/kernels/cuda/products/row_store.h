// Stores a warp's 16 rows of a product in fp32 that a warpgroup's matrix instruction left in registers: lanes hold
// pairs of columns.
#pragma once

#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/products/product_kernels.h"
#include "heddle/kernels/cuda/products/store_pitch.h"

namespace heddle::kernels::cuda {

/// The place of element i of 64 (a tile of 128 columns) among the warp's 16 rows and the tile's columns.
HEDDLE_DEVICE int row_of_element(int lane, int i) { return lane / 4 + i % 4 / 2 * 8; }
HEDDLE_DEVICE int column_of_element(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }

struct StoredRows {
  int64_t first;  // row of c that the warp's first one is
  int64_t left;   // rows from there on that are to be stored
  int lane;
  Bf16* stored;  // shared, the warp's own: 16 rows of kStorePitch
};

/// 128 columns from `column_first` on, those below N. In bf16 the rows go through shared memory, 64 columns at a
/// time, and leave as whole rows of 128 bytes: N is a multiple of 8 then, and of 2 in any case.
HEDDLE_DEVICE void store_columns(const ProductArgs& p, const StoredRows& to, const float (&c)[64],
                                 int64_t column_first) {
  HEDDLE_UNROLL
  for (int part = 0; part < 2; ++part) {
    const int64_t column0 = column_first + part * 64;
    HEDDLE_UNROLL
    for (int j = 0; j < 32; j += 2) {
      const int i = part * 32 + j, row = row_of_element(to.lane, i), column = column_of_element(to.lane, j);
      if (p.wide) {
        if (row >= to.left || column0 + column >= p.N) continue;
        float* at = static_cast<float*>(p.c) + (to.first + row) * p.c_pitch + column0 + column;
        at[0] = c[i];
        at[1] = c[i + 1];
      } else {
        *reinterpret_cast<uint32_t*>(to.stored + row * kStorePitch + column) =
            rounded<Bf16>(c[i]).bits | static_cast<uint32_t>(rounded<Bf16>(c[i + 1]).bits) << 16;
      }
    }
    if (p.wide) continue;
    __syncwarp();
    HEDDLE_UNROLL
    for (int q = 0; q < 4; ++q) {
      const int row = q * 4 + to.lane / 8, column = to.lane % 8 * 8;
      if (row < to.left && column0 + column < p.N) {
        *reinterpret_cast<Quad*>(static_cast<Bf16*>(p.c) + (to.first + row) * p.c_pitch + column0 + column) =
            *reinterpret_cast<const Quad*>(to.stored + row * kStorePitch + column);
      }
    }
    __syncwarp();
  }
}

}  // namespace heddle::kernels::cuda
