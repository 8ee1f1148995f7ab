// The sums of a digest of tensors (train/audit/weight_digest): two, modulo 2^32. They add hashes of each element's
// bits with its tensor's name and its place in the whole tensor. A sum has no order, so parts may be added by
// anybody, in any order and cut anywhere between elements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/train/saved/saved_tensor.h"

namespace heddle::train {

struct DigestSums {
  uint32_t low = 0, high = 0;

  /// Adds `count` elements of `width` bytes each (1, 2, 4 or 8), at any address, which stand in the tensor of this
  /// seed from its element `first` on.
  void add(uint64_t seed, const void* elements, int64_t width, int64_t first, int64_t count);
  void add(const DigestSums& other);
  /// 16 hexadecimal digits.
  std::string text() const;
  bool operator==(const DigestSums&) const = default;
};

/// The part of a tensor's name in the hashes of its elements.
uint64_t digest_seed(std::string_view name);

/// True if a checkpoint's tensor is not a weight but belongs to one: a moment, or the average that is kept.
bool stands_beside_weight(std::string_view name);

/// The sums of a checkpoint's tensors: of its weights, and of what stands beside them.
struct StateDigest {
  DigestSums weights, beside;
  DigestSums& of(std::string_view name) { return stands_beside_weight(name) ? beside : weights; }
  void add(const StateDigest& other);
};

/// The elements of a part of a tensor, which come one behind the other.
class DigestStream {
 public:
  /// `runs` says where they stand in the whole tensor; it and `into` must outlive this.
  DigestStream(std::string_view name, int64_t width, const std::vector<Runs>& runs, DigestSums& into)
      : seed_(digest_seed(name)), width_(width), runs_(runs), into_(into) {}
  /// InternalError where they are no whole elements, or more than the runs have.
  void add(const void* data, int64_t size_bytes);

 private:
  uint64_t seed_;
  int64_t width_;
  const std::vector<Runs>& runs_;
  DigestSums& into_;
  size_t run_ = 0;  // the next element's run, likewise the two below
  int64_t time_ = 0, within_ = 0;
};

/// The digest of tensors as a checkpoint holds them, on all threads.
StateDigest digest_of(const std::vector<SavedTensor>& tensors);

}  // namespace heddle::train
