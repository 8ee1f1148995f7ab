// The grids of kernels whose blocks go from tile to tile.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::kernels::cuda {

/// Blocks a multiprocessor beside messages.
constexpr int64_t kBlocksBesideMessages = 4;

/// Blocks that share `tiles` on a device of so many multiprocessors, each of which holds one of them at a time. The
/// block b takes the tiles b, b + blocks, …. Alone, each multiprocessor has one block, which copies the next tile
/// while it stores this one. Kernels of messages hold some multiprocessors for as long as they last. With one block
/// for each multiprocessor, the tiles of those that are held would come last and take as long again. Beside
/// messages each has four blocks, so that a quarter of that is left.
constexpr int64_t tile_blocks(int64_t tiles, int64_t processors, bool beside_messages) {
  return std::min(tiles, processors * (beside_messages ? kBlocksBesideMessages : 1));
}

}  // namespace heddle::kernels::cuda
