// Declarations for kernels, for the compilers of both sides: the host's calls a kernel by its address (launch.h),
// nvcc's compiles it. No header of CUDA, none of the standard library's heavy ones.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define HEDDLE_KERNEL __global__
#else
#define HEDDLE_KERNEL
#endif

namespace heddle::kernels::cuda {

// Lanes of a warp are a fact of the device that the kernels are compiled for: 32 on NVIDIA's, 64 on AMD's MI300 and
// on MetaX's C500.
#ifndef HEDDLE_WARP
#define HEDDLE_WARP 32
#endif
constexpr int kWarp = HEDDLE_WARP;
static_assert(kWarp == 32 || kWarp == 64, "HEDDLE_WARP is the number of a warp's lanes, 32 or 64");
/// A bit a lane.
#if HEDDLE_WARP == 64
using Lanes = uint64_t;
#else
using Lanes = uint32_t;
#endif

/// The storage type of bf16 on the device: the bits of heddle::bf16.
struct Bf16 {
  uint16_t bits;
};

/// The largest single access.
struct alignas(16) Quad {
  uint32_t word[4];
};

}  // namespace heddle::kernels::cuda
