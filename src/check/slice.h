// The part of a whole tensor that a rank holds: ranges of each of its dims.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::check {

struct Range {
  int64_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
};

struct Slice {
  std::vector<int64_t> of;             // dims of the whole tensor
  std::vector<std::vector<Range>> at;  // of each dim, one behind the other

  bool operator==(const Slice&) const = default;
  /// Elements of the whole tensor.
  int64_t whole() const;
  /// The slice's own dims.
  std::vector<int64_t> dims() const;
  int64_t elements() const;
  /// The element of the whole tensor that each of the slice's is, row-major.
  std::vector<int64_t> places() const;
  /// All of a tensor.
  static Slice all(std::vector<int64_t> dims);
};

/// The elements of a whole tensor that a slice holds.
std::vector<double> taken(const std::vector<double>& whole, const Slice& slice);

}  // namespace heddle::check
