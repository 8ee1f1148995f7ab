// Memory of a device: one mapping with stable addresses. Where values lie in it is decided by ir::Storage.
//
// Addresses are reserved as far as the arena may ever grow; memory comes behind them as the program first reaches
// it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::device {

class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* base() const = 0;
  /// Bytes of the addresses.
  virtual int64_t capacity_bytes() const = 0;
  /// Makes the first `bytes` usable; what has been reached stays. SystemError when there is no more.
  virtual void reach(int64_t bytes) = 0;
  /// Bytes of memory that are behind the addresses, where that is known; else 0.
  virtual int64_t held_bytes() const { return 0; }
  /// Fills what has been reached, and all that is reached later, with NaN bytes, so that a read of unwritten memory
  /// shows.
  virtual void poison() = 0;
};

}  // namespace heddle::device
