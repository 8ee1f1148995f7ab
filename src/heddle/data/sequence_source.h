// Sequences of L + 1 + D ids, by number.
#pragma once

#include <cstdint>
#include <span>

#include "heddle/base/begins.h"

namespace heddle::data {

/// Marks of the ids of a sequence; what is empty isn't asked for.
struct SequenceMarks {
  std::span<uint8_t> masked = {};  // nonzero where an id is no target
  std::span<float> weights = {};   // how much it counts as one
  std::span<Begins> begins = {};   // document or sample that the id is the first of
};

class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual int64_t sequences() const = 0;
  /// Number of consecutive ones that belong together, and are shuffled as one.
  virtual int64_t together() const { return 1; }
  /// Ids of the documents that they are made of.
  virtual int64_t tokens() const = 0;
  /// Fills `tokens`, padding of −1 behind, and what of `marks` is asked for. ConfigError if an id is negative or
  /// not below `vocabulary`.
  virtual void read(int64_t sequence, int64_t vocabulary, std::span<int32_t> tokens,
                    const SequenceMarks& marks) const = 0;
};

}  // namespace heddle::data
