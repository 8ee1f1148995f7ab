// A random order of 0 .. count-1 that can be asked for any place without storing any.
//
// A Feistel network permutes the smallest power of four that holds the range. Results outside it are fed in again
// until one lies inside (Black and Rogaway 2002), about twice on average, four times at worst.
#pragma once

#include <bit>
#include <cstdint>

#include "heddle/base/error.h"
#include "heddle/base/random.h"

namespace heddle::data {

class ShuffledOrder {
 public:
  ShuffledOrder(RandomKey key, int64_t count)
      : key_(key), count_(count), half_bits_(half_bits(count)), half_mask_((uint64_t{1} << half_bits_) - 1) {
    HEDDLE_CHECK(count > 0, "an order of {} things", count);
  }

  /// The thing at `place`, both in [0, count).
  int64_t at(int64_t place) const {
    HEDDLE_CHECK(place >= 0 && place < count_, "place {} of {}", place, count_);
    auto x = static_cast<uint64_t>(place);
    do {
      x = permute(x);
    } while (x >= static_cast<uint64_t>(count_));
    return static_cast<int64_t>(x);
  }

 private:
  static constexpr int kRounds = 6;

  static int half_bits(int64_t count) {
    return count <= 1 ? 1 : (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  }

  uint64_t permute(uint64_t x) const {
    uint64_t left = x >> half_bits_, right = x & half_mask_;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t mixed = left ^ (key_.bits(right * kRounds + round) & half_mask_);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

  RandomKey key_;
  int64_t count_;
  int half_bits_;
  uint64_t half_mask_;
};

}  // namespace heddle::data
