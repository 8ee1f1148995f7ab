// An fp32 as the nearest bf16 and the 16 bits that it lacks: together the number, bit for bit.
//
// Written as high·2¹⁶ + low, the nearest bf16 is `high`, or one more where the number was rounded up: for low above
// one half always, below never. Exactly between two, the even one is nearest, and neither it nor `low` tells from
// which side it was reached: that takes one bit more. A NaN stays one, but not with the same bits.
#pragma once

#include <bit>
#include <cstdint>

#include "heddle/base/dtype.h"

namespace heddle {

constexpr uint16_t kHalfway = 0x8000;

struct SplitFloat {
  bf16 nearest;
  uint16_t low = 0;
  bool up_at_half = false;  // it lay halfway and was rounded up
};

inline SplitFloat split(float number) {
  const auto word = std::bit_cast<uint32_t>(number);
  SplitFloat parts{bf16(number), static_cast<uint16_t>(word), false};
  parts.up_at_half = parts.low == kHalfway && parts.nearest.bits != static_cast<uint16_t>(word >> 16);
  return parts;
}

inline float joined(const SplitFloat& parts) {
  const bool up = parts.low == kHalfway ? parts.up_at_half : parts.low > kHalfway;
  const uint32_t high = static_cast<uint32_t>(parts.nearest.bits) - (up ? 1 : 0);
  return std::bit_cast<float>(high << 16 | parts.low);
}

}  // namespace heddle
