// CRC-32C (Castagnoli), the checksum of iSCSI (RFC 3720, appendix B.4): finds every change within 32 bits in a row
// and misses one in 2^32 of the others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle {

/// Of bytes that follow those whose checksum is `before` (0 at the start).
uint32_t crc32c(const void* data, size_t size_bytes, uint32_t before = 0);

}  // namespace heddle
