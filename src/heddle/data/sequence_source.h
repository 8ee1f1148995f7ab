// Sequences of L + 1 + D ids, by number.
#pragma once

#include <cstdint>
#include <span>

namespace heddle::data {

class SequenceSource {
 public:
  virtual ~SequenceSource() = default;
  virtual int64_t sequences() const = 0;
  /// Ids of the documents that they are made of.
  virtual int64_t tokens() const = 0;
  /// Fills `tokens`, padding of −1 behind; and `masked`, unless it is empty: nonzero where an id is no target.
  /// ConfigError if an id is negative or not below `vocabulary`.
  virtual void read(int64_t sequence, int64_t vocabulary, std::span<int32_t> tokens,
                    std::span<uint8_t> masked) const = 0;
};

}  // namespace heddle::data
