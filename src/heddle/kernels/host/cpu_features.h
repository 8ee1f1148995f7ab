// Features of the processor, asked once. A feature counts only when the operating system lets us use it, so that a
// kernel may be chosen on the answer alone.
//
// The variable HEDDLE_CPU_WITHOUT names features to take as absent (amx, avx512_bf16, avx512, avx2, neon_bf16; with
// commas). Features that build on them are absent too. So a processor that has them all can try what the others
// would run.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::kernels::host {

/// AVX2 with FMA, F16C and BMI2 (x86-64-v3).
const Support& avx2_fma();
/// AVX-512 F, BW, DQ, VL and CD (x86-64-v4).
const Support& avx512();
/// avx512() and the bf16 conversions and dot products.
const Support& avx512_bf16();
/// avx512_bf16() and the bf16 tile products. The first call asks the kernel for permission to use tile state, once
/// for the whole process.
const Support& amx_bf16();

/// The bf16 products of aarch64 (BFMMLA, FEAT_BF16).
const Support& neon_bf16();

/// Features of this architecture, by names for people.
std::vector<std::pair<std::string, Support>> processor_features();

/// Names in HEDDLE_CPU_WITHOUT. ConfigError when it names something else.
const std::vector<std::string_view>& masked_features();
/// Keeps Highway's kernels, too, from what is masked. Before the first of them runs.
void mask_highway();

/// Highway's version and the instruction sets that its kernels may use here, best first.
std::string highway_text();

}  // namespace heddle::kernels::host
