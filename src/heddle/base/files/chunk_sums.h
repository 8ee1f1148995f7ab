// The parts in which bytes are summed (CRC-32C, base/hash.h) where they wait for somebody else: in memory that
// outlives a process, and in the shards of a checkpoint. Damage is then known to 4 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "heddle/base/hash.h"

namespace heddle {

inline constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr int64_t chunks_of(int64_t bytes) {
  return (bytes + static_cast<int64_t>(kChunkBytes) - 1) / static_cast<int64_t>(kChunkBytes);
}

/// The checksums of bytes that come in parts of any size.
class ChunkSums {
 public:
  void add(const void* data, size_t size_bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    while (size_bytes > 0) {
      if (filled_ == 0) sums_.push_back(0);
      const size_t size = size_bytes < kChunkBytes - filled_ ? size_bytes : kChunkBytes - filled_;
      sums_.back() = crc32c(from, size, sums_.back());
      filled_ = (filled_ + size) % kChunkBytes;
      from += size;
      size_bytes -= size;
    }
  }
  const std::vector<uint32_t>& sums() const { return sums_; }

 private:
  std::vector<uint32_t> sums_;
  size_t filled_ = 0;  // of the last chunk; 0: all of it
};

inline std::vector<uint32_t> chunk_sums(const void* data, size_t size_bytes) {
  ChunkSums sums;
  sums.add(data, size_bytes);
  return sums.sums();
}

/// Copies bytes, and sums them (crc32c) as they are read, past the caches: in one pass over memory.
uint32_t crc32c_copy(void* to, const void* from, size_t size_bytes, uint32_t before = 0);

}  // namespace heddle
