// A fast 64-bit hash of bytes, the same on every run and machine (little-endian), for tables and for spotting
// duplicates. Not against an adversary: tables that use it bound their size.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "heddle/base/random.h"

namespace heddle {

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed = 0) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15ull;
  uint64_t hash = seed ^ (bytes.size() * kOdd);
  const char* data = bytes.data();
  size_t left = bytes.size();
  while (left >= 8) {
    uint64_t eight;
    std::memcpy(&eight, data, 8);
    hash = (hash ^ eight) * kOdd;
    hash ^= hash >> 29;
    data += 8;
    left -= 8;
  }
  uint64_t rest = 0;
  if (left > 0) std::memcpy(&rest, data, left);
  return mix_bits(hash ^ rest);
}

}  // namespace heddle
