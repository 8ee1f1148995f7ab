// The expert and its rows that a warp takes, for kernels whose warps go from tile to tile each at its own pace.
#pragma once

#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

struct RowTile {
  int32_t group, tile;  // the tile's number within its group; group −1: there are no so many
};

/// The tile of `rows_each` rows number `number` of all groups'. By a whole warp, each lane of which has the answer.
HEDDLE_DEVICE RowTile tile_of_warp(const int32_t* offsets, int64_t groups, int rows_each, int64_t number) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int64_t before = 0;
  for (int64_t first = 0; first < groups; first += kWarp) {
    const int64_t e = first + lane;
    const int own = e < groups ? (offsets[e + 1] - offsets[e] + rows_each - 1) / rows_each : 0;
    int up_to = own;
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_sync(kFullWarp, up_to, lane - step < 0 ? lane : lane - step);
      if (lane >= step) up_to += other;
    }
    const int all = __shfl_sync(kFullWarp, up_to, kWarp - 1);
    const int64_t wanted = number - before;
    if (wanted < all) {  // alike in all lanes
      // The first group that ends behind it: those that end before it, or are empty, are counted.
      const int at = count_of(vote(up_to <= wanted));
      const int begin = __shfl_sync(kFullWarp, up_to - own, at);
      return {static_cast<int32_t>(first + at), static_cast<int32_t>(wanted - begin)};
    }
    before += all;
  }
  return {-1, 0};
}

}  // namespace heddle::kernels::cuda
