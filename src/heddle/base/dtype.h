// Element types, and bf16 as a storage type with round-to-nearest-even conversion.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle {

enum class Dtype : uint8_t { f64, f32, bf16, i64, i32, u16, u8 };

constexpr int64_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
    case Dtype::i64: return 8;
    case Dtype::f32:
    case Dtype::i32: return 4;
    case Dtype::bf16:
    case Dtype::u16: return 2;
    case Dtype::u8: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return "f64";
    case Dtype::f32: return "f32";
    case Dtype::bf16: return "bf16";
    case Dtype::i64: return "i64";
    case Dtype::i32: return "i32";
    case Dtype::u16: return "u16";
    case Dtype::u8: return "u8";
  }
  return "?";
}

/// The upper half of an fp32. Arithmetic is done in fp32; a store rounds to nearest even.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  bf16(float value) {  // NOLINT(google-explicit-constructor): a number type
    const uint32_t word = std::bit_cast<uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((word >> 16) | 0x40u);  // keep a NaN a NaN
    } else {
      bits = static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
    }
  }
  // NOLINTNEXTLINE(google-explicit-constructor): a number type
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
static_assert(sizeof(bf16) == 2);

// clang-format off
template <class T> struct DtypeOf;
template <> struct DtypeOf<double> { static constexpr Dtype value = Dtype::f64; };
template <> struct DtypeOf<float> { static constexpr Dtype value = Dtype::f32; };
template <> struct DtypeOf<bf16> { static constexpr Dtype value = Dtype::bf16; };
template <> struct DtypeOf<int64_t> { static constexpr Dtype value = Dtype::i64; };
template <> struct DtypeOf<int32_t> { static constexpr Dtype value = Dtype::i32; };
template <> struct DtypeOf<uint16_t> { static constexpr Dtype value = Dtype::u16; };
template <> struct DtypeOf<uint8_t> { static constexpr Dtype value = Dtype::u8; };
// clang-format on
template <class T>
constexpr Dtype dtype_of = DtypeOf<T>::value;

}  // namespace heddle
