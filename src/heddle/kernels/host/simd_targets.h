// The instruction sets that the Highway kernels are compiled for: SSE4 (the least that CMake asks for), AVX2,
// AVX-512, or NEON. The best one that the processor has is chosen at run time. Vectors without a fixed size (SVE)
// can't stand in arrays, which our sums use. Include before anything of Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
