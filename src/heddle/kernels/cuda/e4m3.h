// Numbers of eight bits on the device, as ops/fp8_blocks.h defines them, to the bit.
#pragma once

#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

/// The nearest e4m3; 448 of what is larger. NaN stays NaN.
HEDDLE_DEVICE float nearest_e4m3(float x) {
  if (x != x) return x;
  const float held = fminf(fabsf(x), 448.0f);
  const uint32_t exponent = max(word_of(held) >> 23, 121u);
  const float grid = float_of_word((exponent + 20u) << 23 | 0x400000u);
  const float near = (held + grid) - grid;
  return float_of_word(word_of(near) | (word_of(x) & 0x80000000u));
}
/// The byte of an e4m3, and the number of a byte.
HEDDLE_DEVICE uint8_t byte_of(float e4m3) {
  const uint32_t word = word_of(e4m3), sign = word >> 24 & 0x80u, size = word & 0x7fffffffu;
  if (size > 0x7f800000u) return 0x7f;
  if (size < (121u << 23)) return static_cast<uint8_t>(sign | static_cast<uint32_t>(float_of_word(size) * 512.0f));
  return static_cast<uint8_t>(sign | ((size >> 20) - (120u << 3)));
}
HEDDLE_DEVICE float number_of(uint8_t byte) {
  const uint32_t sign = (byte & 0x80u) << 24, size = byte & 0x7fu;
  if (size == 0x7f) return not_a_number();
  const float number = size < 8 ? static_cast<float>(size) * 0x1p-9f : float_of_word((size + (120u << 3)) << 20);
  return float_of_word(word_of(number) | sign);
}

}  // namespace heddle::kernels::cuda
