// Counter-based random numbers: each number is a pure function of a key and a counter, so that any layout,
// schedule or replay draws the same ones.
//
// The mixer is SplitMix64's, applied to key and counter in turn.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "heddle/base/hash.h"

namespace heddle {

/// A stream of random numbers named by a seed and a path of words and numbers.
class RandomKey {
 public:
  explicit constexpr RandomKey(uint64_t seed) : key_(mix_bits(seed)) {}
  constexpr RandomKey with(uint64_t part) const { return RandomKey(key_ ^ mix_bits(part), 0); }
  constexpr RandomKey with(std::string_view part) const { return with(fnv1a(part)); }

  constexpr uint64_t bits(uint64_t counter) const { return mix_bits(key_ ^ mix_bits(counter)); }
  /// A number in [0, 1).
  constexpr double uniform(uint64_t counter) const { return static_cast<double>(bits(counter) >> 11) * 0x1.0p-53; }
  /// Mean 0, deviation 1 (Box and Muller).
  double normal(uint64_t counter) const {
    const double u = 1.0 - uniform(2 * counter);  // (0, 1]
    const double v = uniform(2 * counter + 1);
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  constexpr RandomKey(uint64_t key, int) : key_(mix_bits(key)) {}
  uint64_t key_;
};

}  // namespace heddle
