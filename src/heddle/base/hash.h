// Hashes of 64 bits, the same on every run and machine (little-endian), for tables and for spotting duplicates.
// None is against an adversary: tables that use them bound their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace heddle {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014), or with other constants that of another generator.
constexpr uint64_t finalised(uint64_t x, int s = 30, uint64_t a = 0xbf58476d1ce4e5b9ull, int t = 27,
                             uint64_t b = 0x94d049bb133111ebull, int u = 31) {
  x = (x ^ (x >> s)) * a;
  x = (x ^ (x >> t)) * b;
  return x ^ (x >> u);
}

/// One step of SplitMix64: every bit of the result depends on every bit of `x`.
constexpr uint64_t mix_bits(uint64_t x) { return finalised(x + 0x9e3779b97f4a7c15ull); }

/// FNV-1a over bytes that follow those whose hash is `before`: for short texts, and where it must stay what it was.
inline constexpr uint64_t kFnvStart = 0xcbf29ce484222325ull;
constexpr uint64_t fnv1a(std::string_view bytes, uint64_t before = kFnvStart) {
  for (const char c : bytes) before = (before ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return before;
}

/// Eight bytes at a time.
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

/// CRC-32C (Castagnoli), the checksum of iSCSI (RFC 3720, appendix B.4): finds every change within 32 bits in a row
/// and misses one in 2^32 of the others. Of bytes that follow those whose checksum is `before` (0 at the start).
uint32_t crc32c(const void* data, size_t size_bytes, uint32_t before = 0);

}  // namespace heddle
