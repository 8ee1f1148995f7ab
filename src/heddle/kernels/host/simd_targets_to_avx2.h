// For Highway kernels in whose place AVX-512 has others: compiled up to AVX2 (and for NEON), which is then what
// they run on everywhere. Include before anything of Highway, in place of simd_targets.h.
#pragma once

// A better set has a lower bit.
#define HWY_DISABLED_TARGETS ((HWY_AVX2 - 1) | HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
