#include "heddle/base/hash.h"

#include <array>
#include <cstring>

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
__attribute__((target("sse4.2"))) uint32_t by_instruction(const uint8_t* data, size_t size_bytes, uint32_t sum) {
  uint64_t wide = sum;
  for (; size_bytes >= 8; data += 8, size_bytes -= 8) {
    uint64_t eight;
    std::memcpy(&eight, data, 8);
    wide = _mm_crc32_u64(wide, eight);
  }
  return by_table(data, size_bytes, static_cast<uint32_t>(wide));
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t size_bytes, uint32_t before) {
  const auto* bytes = static_cast<const uint8_t*>(data);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(bytes, size_bytes, ~before);
#endif
  return ~by_table(bytes, size_bytes, ~before);
}

}  // namespace heddle
