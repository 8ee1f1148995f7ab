// Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011): four words that are a pure
// function of a counter of four words and a key of two.
#pragma once

#include <array>
#include <cstdint>

namespace heddle {

struct Philox {
  static constexpr uint32_t kMultiplier[2] = {0xD2511F53, 0xCD9E8D57};
  static constexpr uint32_t kWeyl[2] = {0x9E3779B9, 0xBB67AE85};
  static constexpr int kRounds = 10;
  using Words = std::array<uint32_t, 4>;

  static constexpr Words at(Words counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t a = uint64_t{kMultiplier[0]} * counter[0], b = uint64_t{kMultiplier[1]} * counter[2];
      counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                 static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
      key[0] += kWeyl[0];
      key[1] += kWeyl[1];
    }
    return counter;
  }
};

}  // namespace heddle
