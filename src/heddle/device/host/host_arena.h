// The arena of the CPU device: an anonymous mapping whose pages appear when first touched.
#pragma once

#include "heddle/device/arena.h"

namespace heddle::device {

class HostArena : public Arena {
 public:
  /// SystemError when the mapping is refused.
  explicit HostArena(int64_t capacity_bytes);
  ~HostArena() override;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  std::byte* base() const override { return base_; }
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  void reach(int64_t) override {}  // pages appear when first touched
  void poison() override;

 private:
  std::byte* base_ = nullptr;
  int64_t capacity_bytes_ = 0;
};

/// Bytes of physical memory that this process may hope for: the smaller of the machine's and its control group's.
int64_t host_memory_bytes();

}  // namespace heddle::device
