// Memory of a device: one mapping with stable addresses. Where values lie in it is decided by ir::Storage.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::device {

class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::byte* base() const = 0;
  virtual int64_t capacity_bytes() const = 0;
};

}  // namespace heddle::device
