// Detects a device that has Hopper's own instructions, and its number of multiprocessors, by which they are
// launched.
#pragma once

#include <cstdint>

namespace heddle::kernels::cuda {

/// True if the environment says 1.
bool asked_for(const char* variable);
/// Multiprocessors of a device of capability 9.0; 0: another, or none.
int processors_of_hopper();
/// Blocks of a launch that shares so many tiles (tile_blocks.h), on the device in use.
int64_t hopper_blocks(int64_t tiles, int processors);

}  // namespace heddle::kernels::cuda
