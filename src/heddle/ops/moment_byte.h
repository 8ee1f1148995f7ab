// AdamW's first moment in one byte (train.moments = "fp8"): m in units of √v ÷ 32, as an e4m3 (ops/fp8_blocks.h).
//
// A step moves a parameter by m ÷ √v, so this is the number whose error counts. v gives every element a scale of
// its own. By Cauchy and Schwarz |m| ≤ √v·(1 − β₁) ÷ √((1 − β₂)(1 − β₁²/β₂)): 1.2 √v with 0.9 and 0.95, 7.3 √v with
// 0.9 and 0.999. A byte holds 2^-11 to 14 of √v to one part in sixteen, and smaller numbers to 2^-15 of √v. Larger
// ones are cut to 14. v is kept as bf16, and the scale is of v as it is kept. So the two numbers of an element
// alone decide its bytes. No block of elements shares a scale, and no cut of the state over ranks or copies changes
// a bit.
//
// FP8-LM (Peng et al., arXiv 2310.18313, section 2.2) keeps m in 8 and v in 16 bits: v in 8 loses its small
// numbers. There a whole tensor shares the scale of m; in 8-bit Adam (Dettmers et al., arXiv 2110.02861) a block of
// elements.
#pragma once

#include <cmath>

#include "heddle/ops/fp8_blocks.h"

namespace heddle::fp8 {

/// The e4m3 that stands for m = √v.
constexpr float kMomentUnits = 32;

/// The byte that is kept of m, beside `v` as that is kept. The sign of v is not looked at. Zero where v is.
inline uint8_t byte_of_moment(float m, float v) {
  const float root = std::sqrt(std::abs(v));
  return root == 0 ? uint8_t{0} : byte_of(rounded<float>(m / root * kMomentUnits));
}
/// The first moment that a byte stands for beside this v.
inline float moment_of_byte(uint8_t byte, float v) {
  return number_of(byte) * (std::sqrt(std::abs(v)) * (1 / kMomentUnits));
}

}  // namespace heddle::fp8
