#include "heddle/base/hash.h"

#include <array>
#include <cstring>

#include "heddle/base/files/chunk_sums.h"
#include "heddle/base/stream_line.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace heddle {

namespace {

constexpr std::array<uint32_t, 256> kTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = rest;
  }
  return table;
}();

uint32_t by_table(const uint8_t* data, size_t size_bytes, uint32_t sum) {
  for (size_t i = 0; i < size_bytes; ++i) sum = (sum >> 8) ^ kTable[(sum ^ data[i]) & 255];
  return sum;
}

#if defined(__x86_64__)
// An instruction takes three cycles, but one may begin in each: three runs of bytes are summed beside each other.
// What comes behind a run turns its sum as so many zero bytes would, which is linear: a table a byte of the sum.
constexpr size_t kRunBytes = 4096;
using Matrix = std::array<uint32_t, 32>;  // over GF(2), by columns

constexpr uint32_t times(const Matrix& m, uint32_t vector) {
  uint32_t sum = 0;
  for (size_t i = 0; vector != 0; ++i, vector >>= 1) sum ^= (vector & 1) != 0 ? m[i] : 0;
  return sum;
}

struct BehindRun {
  std::array<std::array<uint32_t, 256>, 4> of{};
  constexpr BehindRun() {
    Matrix zeros{0x82f63b78u};  // one zero bit
    for (size_t i = 1; i < 32; ++i) zeros[i] = 1u << (i - 1);
    for (size_t bits = 1; bits < 8 * kRunBytes; bits *= 2) {
      Matrix twice{};
      for (size_t i = 0; i < 32; ++i) twice[i] = times(zeros, zeros[i]);
      zeros = twice;
    }
    for (size_t place = 0; place < 4; ++place) {
      for (uint32_t byte = 0; byte < 256; ++byte) of[place][byte] = times(zeros, byte << (8 * place));
    }
  }
  uint32_t operator()(uint32_t sum) const {
    return of[0][sum & 255] ^ of[1][sum >> 8 & 255] ^ of[2][sum >> 16 & 255] ^ of[3][sum >> 24];
  }
};

uint64_t eight_at(const uint8_t* data) {
  uint64_t eight;
  std::memcpy(&eight, data, 8);
  return eight;
}

// `to`: where the bytes are copied to meanwhile, at a multiple of 16, past the caches; null: nowhere. What the next
// round reads is fetched in this one: processors follow a run within a page only. The three sums have names: an
// array of them would lie in memory, which takes longer than the instruction.
template <bool copies>
__attribute__((target("sse4.2"))) uint32_t by_instruction(const uint8_t* data, size_t size_bytes, uint32_t sum,
                                                          uint8_t* to = nullptr) {
  static const BehindRun behind;
  constexpr size_t kLine = 64;
  const auto fetch = [](const uint8_t* at) { __builtin_prefetch(at); };
  for (; size_bytes >= 3 * kRunBytes; data += 3 * kRunBytes, size_bytes -= 3 * kRunBytes) {
    uint64_t first = sum, second = 0, third = 0;
    for (size_t line = 0; line < kRunBytes; line += kLine) {
      const uint8_t *a = data + line, *b = a + kRunBytes, *c = b + kRunBytes;
      fetch(c + kRunBytes);
      fetch(c + 2 * kRunBytes);
      fetch(c + 3 * kRunBytes);
      for (size_t i = 0; i < kLine; i += 8) {
        first = _mm_crc32_u64(first, eight_at(a + i));
        second = _mm_crc32_u64(second, eight_at(b + i));
        third = _mm_crc32_u64(third, eight_at(c + i));
      }
      if constexpr (copies) {  // a line at a time, as they leave the processor
        stream_line(to + line, a);
        stream_line(to + line + kRunBytes, b);
        stream_line(to + line + 2 * kRunBytes, c);
      }
    }
    if constexpr (copies) to += 3 * kRunBytes;
    sum =
        behind(behind(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second)) ^ static_cast<uint32_t>(third);
  }
  if constexpr (copies) {
    _mm_sfence();
    std::memcpy(to, data, size_bytes);
  }
  uint64_t wide = sum;
  for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
    wide = _mm_crc32_u64(wide, eight_at(data));
  }
  return by_table(data, size_bytes, static_cast<uint32_t>(wide));
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t size_bytes, uint32_t before) {
  const auto* bytes = static_cast<const uint8_t*>(data);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction<false>(bytes, size_bytes, ~before);
#endif
  return ~by_table(bytes, size_bytes, ~before);
}

uint32_t crc32c_copy(void* to, const void* from, size_t size_bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    return ~by_instruction<true>(static_cast<const uint8_t*>(from), size_bytes, ~before, static_cast<uint8_t*>(to));
  }
#endif
  std::memcpy(to, from, size_bytes);
  return crc32c(to, size_bytes, before);
}

}  // namespace heddle
