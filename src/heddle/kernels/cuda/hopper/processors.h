// Detects a device that has Hopper's own instructions, its number of multiprocessors, and which of the kernels on
// these instructions it uses.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::kernels::cuda {

/// Kernels on Hopper's own instructions. A device of capability 9.0 uses them unless the environment says 0 or the
/// device has failed their trial.
enum class HopperKernel : uint8_t {
  rows,       // experts' products cut by rows: HEDDLE_WGMMA
  sums,       // experts' weight gradients by CUTLASS: HEDDLE_CUTLASS
  eight_bits  // products in eight bits: HEDDLE_WGMMA_FP8
};

/// True unless the environment leaves the kernel out. Says nothing of a device.
bool wanted(HopperKernel kernel);
/// Multiprocessors of a device of capability 9.0; 0: another, or none.
int processors_of_hopper();
/// Multiprocessors of the device in use if it uses the kernel, else 0.
int processors_for(HopperKernel kernel);
/// Blocks of a launch that shares so many tiles (tile_blocks.h), on the device in use.
int64_t hopper_blocks(int64_t tiles, int processors);

/// Why the device in use has failed the kernel's trial; empty: it has not.
std::string failure_of(HopperKernel kernel);
/// Leaves the kernel out on the device in use. An empty reason takes it back.
void leave_out(HopperKernel kernel, std::string reason);

}  // namespace heddle::kernels::cuda
