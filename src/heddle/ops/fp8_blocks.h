// Eight-bit numbers in blocks that share a scale, as the products of ops/fp8.cpp round their operands. This file
// has what each backend's kernels have in common, and the definition of every rounding.
//
// A number is e4m3: a sign, four bits of exponent, three of fraction. It has no infinity, 448 is the largest, and
// below 2^-6 are multiples of 2^-9 (Micikevicius et al., FP8 Formats for Deep Learning, arXiv 2209.05433). A scale
// is 2^e, kept as the byte e + 127 (E8M0 of the OCP Microscaling Formats specification 1.0). The exponent e is the
// least with which the block's largest magnitude is at most 448·2^e, but no less than kLeastExponent and no more
// than kMostExponent. So any number times its scale is a normal number in bf16 and fp32, or zero. A block in which
// something is not finite has the byte 255, and all of it is NaN.
//
// As scales are powers of two, a rounded number times its scale is exact in bf16, and a product of two exact in
// fp32. Rounding a rounded number along the other direction loses only what falls below 2^-9 of a larger scale.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace heddle::fp8 {

/// Numbers along each side of a block.
constexpr int64_t kBlock = 128;
constexpr int kLeastExponent = -117, kMostExponent = 119, kExponentBias = 127;
constexpr uint8_t kNotFinite = 255, kNan = 0x7f;
constexpr double kLargest = 448;

constexpr int64_t blocks_of(int64_t count) { return (count + kBlock - 1) / kBlock; }

/// The byte of the scale of a block whose largest magnitude is `most`; NaN or infinity where one of it is.
template <class A>
uint8_t scale_for(A most) {
  if (!(most <= std::numeric_limits<A>::max())) return kNotFinite;
  if (most == 0) return kLeastExponent + kExponentBias;
  int exponent = 0;
  const A fraction = std::frexp(most, &exponent);  // in [1/2, 1); 448 is 7/8·2^9
  exponent -= fraction <= A(0.875) ? 9 : 8;
  return static_cast<uint8_t>(std::clamp(exponent, kLeastExponent, kMostExponent) + kExponentBias);
}

/// 2^e, NaN of kNotFinite; and 2^-e.
inline float scale_of(uint8_t byte) {
  return byte == kNotFinite ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(uint32_t{byte} << 23);
}
inline float inverse_of(uint8_t byte) {
  return byte == kNotFinite ? std::numeric_limits<float>::quiet_NaN()
                            : std::bit_cast<float>((2u * kExponentBias - byte) << 23);
}

/// x, in units of its scale, as an e4m3: to nearest, of two equally near that whose last bit is even; what is
/// larger than 448 becomes that. NaN stays NaN. The number that is added and taken off again has its last bit where
/// an e4m3 of this size has its own.
template <class A>
A rounded(A x) {
  using Bits = std::conditional_t<std::is_same_v<A, double>, uint64_t, uint32_t>;
  constexpr int kFraction = std::numeric_limits<A>::digits - 1, kBias = std::numeric_limits<A>::max_exponent - 1;
  const A held = std::min(std::max(x, A(-kLargest)), A(kLargest));
  const Bits exponent = std::max<Bits>(std::bit_cast<Bits>(std::abs(held)) >> kFraction, kBias - 6);
  const A grid = std::bit_cast<A>((exponent + (kFraction - 3)) << kFraction | Bits{1} << (kFraction - 1));
  const A near = (std::abs(held) + grid) - grid;
  return x != x ? x : std::copysign(near, x);
}

/// The byte of an e4m3, and the number of a byte.
inline uint8_t byte_of(float e4m3) {
  const auto word = std::bit_cast<uint32_t>(e4m3);
  const uint32_t sign = word >> 24 & 0x80u, size = word & 0x7fffffffu;
  if (size > 0x7f800000u) return kNan;
  if (size < (121u << 23)) return static_cast<uint8_t>(sign | static_cast<uint32_t>(std::abs(e4m3) * 512));
  return static_cast<uint8_t>(sign | ((size >> 20) - (120u << 3)));
}
inline float number_of(uint8_t byte) {
  const uint32_t sign = (byte & 0x80u) << 24, size = byte & 0x7fu;
  if (size == kNan) return std::numeric_limits<float>::quiet_NaN();
  const float small = static_cast<float>(size) * 0x1p-9f;
  const float number = size < 8 ? small : std::bit_cast<float>((size + (120u << 3)) << 20);
  return sign != 0 ? -number : number;
}

/// The largest magnitude seen, for scale_for: infinity once a number was not finite, which a maximum would not say
/// of NaN.
template <class A>
A larger(A most, A x) {
  const A size = std::abs(x);
  return std::max(most, size <= std::numeric_limits<A>::max() ? size : std::numeric_limits<A>::infinity());
}

/// x rounded in a block whose scale has this byte.
template <class A>
A in_block(A x, uint8_t scale) {
  return rounded<A>(x * static_cast<A>(inverse_of(scale))) * static_cast<A>(scale_of(scale));
}

}  // namespace heddle::fp8
