// The arena of the CPU device: an anonymous mapping that is opened as the program reaches it; its pages appear when
// they are first touched.
//
// Up to the predicted bytes nothing is asked: the plan of the run has made sure of room. Beyond, the arena takes
// only what the machine has left. So a run that was predicted wrongly ends with a message and not by the kernel's
// hand.
#pragma once

#include "heddle/device/arena.h"

namespace heddle::device {

class HostArena : public Arena {
 public:
  /// As Device::arena. SystemError when the mapping is refused.
  explicit HostArena(int64_t capacity_bytes, int64_t predicted_bytes = 0);
  ~HostArena() override;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  std::byte* base() const override { return base_; }
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  void reach(int64_t bytes) override {
    if (bytes > open_bytes_) open(bytes);
  }
  void poison() override;

 private:
  void open(int64_t bytes);

  std::byte* base_ = nullptr;
  int64_t capacity_bytes_, predicted_bytes_, mapped_bytes_ = 0, open_bytes_ = 0;
  bool poisoned_ = false;
};

}  // namespace heddle::device
