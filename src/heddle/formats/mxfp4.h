// MXFP4: numbers of four bits (a sign, two bits of exponent, one of mantissa) in blocks of 32 that share a power of
// two (OCP Microscaling Formats 1.0, section 5.2). In a file a tensor NAME [E, N, K] is two tensors. NAME_blocks
// u8[E, N, K ÷ 32, 16] has two numbers a byte, the lower four bits first. NAME_scales u8[E, N, K ÷ 32] has
// exponents that begin at −127.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "heddle/formats/safetensors.h"

namespace heddle::formats {

inline constexpr int64_t kMxfp4Block = 32;
inline constexpr std::string_view kMxfp4Blocks = "_blocks", kMxfp4Scales = "_scales";

/// Elements first … first + count − 1 of the tensor, exact in f32 but for what overflows it.
void read_mxfp4(const StoredTensor& blocks, const StoredTensor& scales, int64_t first, std::span<float> into);

}  // namespace heddle::formats
