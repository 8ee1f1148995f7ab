// The facts that a walk has beforehand about the values of a listing: how often each is used, and into which
// segments its parts cut it.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ir/program.h"

namespace heddle::ir {

/// The lifetimes of one listing's values. Parts count for their base.
struct Lifetimes {
  explicit Lifetimes(const Listing& listing);

  /// The number of times that ops write, read, update and drop the value, whether they run or not. Its storage goes
  /// with the last time.
  std::vector<int32_t> uses;
  /// Some use is of another phase or chunk than the first: it is there beyond its block.
  std::vector<uint8_t> outlives;
};

/// The segments of values of all listings that a rank runs. What the same parts of a base cover is one segment. A
/// value that one listing shares or flips with another is cut by the parts of both. A value without parts is one
/// segment.
class Segments {
 public:
  Segments(const StepProgram& program, const std::vector<int>& listings);

  /// The number of segments of a value's base.
  uint32_t count(int listing, ValueId id) const { return of(listing, id).count; }
  /// The segments of its base that a value covers.
  const std::vector<uint32_t>& covered(int listing, ValueId id) const { return of(listing, id).segments; }

 private:
  struct Of {
    uint32_t count = 1;
    std::vector<uint32_t> segments;  // empty where there is but one
  };
  const Of& of(int listing, ValueId id) const { return of_[listing][id]; }
  std::vector<std::vector<Of>> of_;  // [listing][value]
};

}  // namespace heddle::ir
