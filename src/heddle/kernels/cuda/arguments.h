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

/// The storage type of bf16 on the device: the bits of heddle::bf16.
struct Bf16 {
  uint16_t bits;
};

/// The largest single access.
struct alignas(16) Quad {
  uint32_t word[4];
};

}  // namespace heddle::kernels::cuda
