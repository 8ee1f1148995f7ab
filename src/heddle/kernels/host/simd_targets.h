// Which instruction sets the Highway kernels are compiled for: plain numbers, SSE4, AVX2, AVX-512 (and NEON);
// the best one that the processor has is chosen at run time. SSSE3 alone is left to plain numbers, and vectors
// without a fixed size (SVE) can't stand in arrays, which our sums use. Include before anything of Highway.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
