#include "heddle/device/host/host_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "heddle/base/error.h"
#include "heddle/device/host/host_memory.h"

namespace heddle::device {

namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kStepBytes = int64_t{64} << 20;       // that is opened at once where it was predicted
constexpr int64_t kLeftForOthers = int64_t{128} << 20;  // of the machine, by what was not

int64_t rounded_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }
int64_t in_mib(int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20; }

}  // namespace

HostArena::HostArena(int64_t capacity_bytes, int64_t predicted_bytes)
    : capacity_bytes_(std::max<int64_t>(capacity_bytes, 1)),
      predicted_bytes_(predicted_bytes > 0 ? std::min(predicted_bytes, capacity_bytes_) : capacity_bytes_) {
  // Closed pages count against no limit but that on addresses (ulimit -v): where that is less than the machine has,
  // the arena has fewer to grow into.
  void* mapped = MAP_FAILED;
  while (true) {
    mapped_bytes_ = rounded_up(capacity_bytes_, kHugePage);
    mapped = mmap(nullptr, static_cast<size_t>(mapped_bytes_), PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped != MAP_FAILED || capacity_bytes_ == predicted_bytes_) break;
    capacity_bytes_ = std::max(predicted_bytes_, capacity_bytes_ / 2);
  }
  if (mapped == MAP_FAILED) {
    throw SystemError(
        errno, fmt::format("cannot map {} bytes of device memory: {}", capacity_bytes_, std::strerror(errno)));
  }
  base_ = static_cast<std::byte*>(mapped);
  madvise(mapped, static_cast<size_t>(mapped_bytes_), MADV_HUGEPAGE);
}

HostArena::~HostArena() { munmap(base_, static_cast<size_t>(mapped_bytes_)); }

void HostArena::open(int64_t bytes) {
  HEDDLE_CHECK(bytes <= capacity_bytes_, "an arena of {} bytes is to reach {}", capacity_bytes_, bytes);
  const bool predicted = bytes <= predicted_bytes_;
  const int64_t end = predicted ? std::min(rounded_up(bytes, kStepBytes), rounded_up(predicted_bytes_, kHugePage))
                                : rounded_up(bytes, kHugePage);
  const int64_t more = end - open_bytes_;
  if (!predicted) {
    const int64_t left = host_memory_left_bytes();
    if (more + kLeftForOthers > left) {
      throw SystemError(ENOMEM,
                        fmt::format("out of device memory: {} MiB more are needed than the {} MiB predicted, and "
                                    "this machine has {} MiB left",
                                    in_mib(bytes - predicted_bytes_), in_mib(predicted_bytes_), left >> 20));
    }
  }
  std::byte* const from = base_ + open_bytes_;
  const auto length = static_cast<size_t>(more);
  if (mprotect(from, length, PROT_READ | PROT_WRITE) != 0) {
    throw SystemError(errno, fmt::format("out of device memory: the system refuses {} MiB beyond {} MiB: {}",
                                         in_mib(more), open_bytes_ >> 20, std::strerror(errno)));
  }
  open_bytes_ = end;
#ifdef MADV_POPULATE_WRITE
  if (!predicted) madvise(from, length, MADV_POPULATE_WRITE);  // taken now, so that other ranks see what is left
#endif
  if (poisoned_) std::memset(from, 0xff, length);
}

void HostArena::poison() {
  poisoned_ = true;
  std::memset(base_, 0xff, static_cast<size_t>(open_bytes_));
}

}  // namespace heddle::device
