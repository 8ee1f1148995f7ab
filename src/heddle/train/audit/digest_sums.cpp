#include "heddle/train/audit/digest_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/base/hash.h"

namespace heddle::train {

namespace {

// The whole elements' words of 32 bits (16, 8) from index `first` on.
template <class Word>
inline __attribute__((always_inline)) DigestSums sums_of(const Word* words, uint64_t seed, uint64_t first,
                                                         int64_t count) {
  const uint64_t start = mix_bits(seed + (first >> 32));
  const auto from = static_cast<uint32_t>(start) + static_cast<uint32_t>(first) * 0x9e3779b1u;
  const auto turn = static_cast<uint32_t>(start >> 32);
  // Numbers of its own: clang emits no constructor that only clones of a function call.
  uint32_t low = 0, high = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t x = (static_cast<uint32_t>(words[i]) ^ turn) + from + static_cast<uint32_t>(i) * 0x9e3779b1u;
    x = (x ^ (x >> 16)) * 0x7feb352du;  // lowbias32 (Wellons, "Prospecting for Hash Functions")
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x ^= x >> 16;
    low += x;
    high += (x ^ turn) * (x | 1u);
  }
  return {low, high};
}

#if defined(__x86_64__)
#define HEDDLE_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define HEDDLE_WIDEST
#endif
HEDDLE_WIDEST DigestSums sums_of_32(const uint32_t* words, uint64_t seed, uint64_t first, int64_t count) {
  return sums_of(words, seed, first, count);
}
HEDDLE_WIDEST DigestSums sums_of_8(const uint8_t* bytes, uint64_t seed, uint64_t first, int64_t count) {
  return sums_of(bytes, seed, first, count);
}
HEDDLE_WIDEST DigestSums sums_of_16(const uint16_t* words, uint64_t seed, uint64_t first, int64_t count) {
  return sums_of(words, seed, first, count);
}

DigestSums sums_of(uint64_t seed, const void* elements, int64_t width, int64_t first, int64_t count) {
  const auto at = static_cast<uint64_t>(first);
  switch (width) {
    case 8: return sums_of_32(static_cast<const uint32_t*>(elements), seed, 2 * at, 2 * count);
    case 4: return sums_of_32(static_cast<const uint32_t*>(elements), seed, at, count);
    case 2: return sums_of_16(static_cast<const uint16_t*>(elements), seed, at, count);
    case 1: return sums_of_8(static_cast<const uint8_t*>(elements), seed, at, count);
    default: internal_error("a digest of elements of {} bytes", width);
  }
}

}  // namespace

void DigestSums::add(uint64_t seed, const void* elements, int64_t width, int64_t first, int64_t count) {
  if (reinterpret_cast<uintptr_t>(elements) % alignof(uint32_t) == 0)
    return add(sums_of(seed, elements, width, first, count));
  alignas(uint64_t) std::array<std::byte, 1 << 14> aligned;
  const int64_t most = std::ssize(aligned) / width;
  for (const auto* from = static_cast<const std::byte*>(elements); count > 0;) {
    const int64_t some = std::min(count, most);
    std::memcpy(aligned.data(), from, static_cast<size_t>(some * width));
    add(sums_of(seed, aligned.data(), width, first, some));
    from += some * width;
    first += some;
    count -= some;
  }
}

void DigestSums::add(const DigestSums& other) {
  low += other.low;
  high += other.high;
}

std::string DigestSums::text() const { return fmt::format("{:08x}{:08x}", high, low); }

uint64_t digest_seed(std::string_view name) { return hash_bytes(name); }

bool stands_beside_weight(std::string_view name) {
  return name.starts_with("m.") || name.starts_with("v.") || name.starts_with("average.");
}

void StateDigest::add(const StateDigest& other) {
  weights.add(other.weights);
  beside.add(other.beside);
}

void DigestStream::add(const void* data, int64_t size_bytes) {
  HEDDLE_CHECK(size_bytes % width_ == 0, "{} bytes of elements of {}", size_bytes, width_);
  const auto* from = static_cast<const std::byte*>(data);
  for (int64_t left = size_bytes / width_; left > 0;) {
    HEDDLE_CHECK(run_ < runs_.size(), "a part of a tensor has {} elements too many", left);
    const Runs& r = runs_[run_];
    const int64_t count = std::min(left, r.count - within_);
    into_.add(seed_, from, width_, r.whole + time_ * r.stride + within_, count);
    from += count * width_;
    left -= count;
    within_ += count;
    if (within_ < r.count) continue;
    within_ = 0;
    if (++time_ < r.times) continue;
    time_ = 0;
    ++run_;
  }
}

StateDigest digest_of(const std::vector<SavedTensor>& tensors) {
  struct Piece {
    const SavedTensor* tensor;
    const SavedTensor::Part* part;
    int64_t first, count;  // elements of the whole tensor, of which the part's are added
  };
  constexpr int64_t kElements = int64_t{1} << 20;
  std::vector<Piece> pieces;
  for (const SavedTensor& tensor : tensors) {
    for (const SavedTensor::Part& part : tensor.parts) {
      for (int64_t first = 0, all = tensor.elements(); first < all; first += kElements)
        pieces.push_back({&tensor, &part, first, std::min(kElements, all - first)});
    }
  }
  StateDigest digest;
  const auto count = std::ssize(pieces);
#pragma omp parallel if (count > 1)
  {
    StateDigest own;
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < count; ++i) {
      const Piece& piece = pieces[i];
      const uint64_t seed = digest_seed(piece.tensor->name);
      const int64_t width = formats::size_of(piece.tensor->type);
      DigestSums& sums = own.of(piece.tensor->name);
      each_run(piece.part->runs, piece.first, piece.first + piece.count,
               [&](int64_t local, int64_t whole, int64_t n) {
                 sums.add(seed, piece.part->bytes.data() + local * width, width, whole, n);
               });
    }
#pragma omp critical
    digest.add(own);
  }
  return digest;
}

}  // namespace heddle::train
