// The expert and its rows that a block of a product takes, found from the offsets on the device.
#pragma once

#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

/// Finds the group that has the tile of rows `tile`, and its number there; left as it was: none. By the first warp.
HEDDLE_DEVICE void find_tile(const int32_t* offsets, int64_t groups, int rows_each, int64_t tile, int32_t* group,
                             int32_t* tile_in_group) {
  const int lane = static_cast<int>(threadIdx.x);
  int64_t before = 0;
  for (int64_t first = 0; first < groups; first += kWarp) {
    const int64_t e = first + lane;
    int tiles = e < groups ? (offsets[e + 1] - offsets[e] + rows_each - 1) / rows_each : 0;
    int own = tiles;
    for (int step = 1; step < kWarp; step *= 2) {  // sums up to here
      const int other = __shfl_sync(kFullWarp, tiles, lane - step < 0 ? lane : lane - step);
      if (lane >= step) tiles += other;
    }
    const int64_t end = before + tiles;
    if (tile >= end - own && tile < end) {
      group[0] = static_cast<int32_t>(e);
      tile_in_group[0] = static_cast<int32_t>(tile - (end - own));
    }
    before += __shfl_sync(kFullWarp, tiles, kWarp - 1);
  }
}

}  // namespace heddle::kernels::cuda
