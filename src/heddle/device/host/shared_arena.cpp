#include "heddle/device/host/shared_arena.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "heddle/base/error.h"

namespace heddle::device {

namespace {

constexpr int64_t kHeaderBytes = SharedArena::kDataAt;
constexpr uint64_t kMark = 0x316d6873656c6468;  // "hdleshm1"

struct Header {
  std::atomic<uint64_t> mark;  // written last: a file without it was never finished
  uint64_t layout;
  int64_t bytes;
};

[[noreturn]] void refuse(const std::string& path, const char* what, int error) {
  throw SystemError(error, fmt::format("'{}' {}: {}", path, what, std::strerror(error)));
}

}  // namespace

SharedArena::SharedArena(const std::string& path, int64_t bytes, uint64_t layout)
    : bytes_(std::max<int64_t>(bytes, 1)) {
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0) refuse(path, "can't be opened as memory that outlives the process", errno);
  try {
    struct stat is {};
    if (fstat(file_, &is) != 0) refuse(path, "can't be asked for its size", errno);
    if (!S_ISREG(is.st_mode) || is.st_uid != geteuid())
      throw SystemError(EPERM, fmt::format("'{}' is no plain file of this user", path));
    if (flock(file_, LOCK_EX | LOCK_NB) != 0)
      throw SystemError(errno, fmt::format("'{}' is in use by another process", path));
    const int64_t size = kHeaderBytes + bytes_;
    if (is.st_size == 0) {
      // Taken now: a page that can't be had later would end the process by a signal.
      if (const int error = posix_fallocate(file_, 0, size); error != 0) {
        unlink(path.c_str());
        refuse(path, fmt::format("has no room for {} MiB", (size >> 20) + 1).c_str(), error);
      }
    } else if (is.st_size != size) {
      throw SystemError(EINVAL, fmt::format("'{}' has {} bytes, this program needs {}; delete it to begin anew",
                                            path, is.st_size, size));
    }
    void* mapped = mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (mapped == MAP_FAILED) refuse(path, "can't be mapped", errno);
    mapped_ = static_cast<std::byte*>(mapped);
#ifdef MADV_POPULATE_WRITE
    madvise(mapped, static_cast<size_t>(size),
            MADV_POPULATE_WRITE);  // a copy to pages met for the first time is slow
#endif
    auto* header = reinterpret_cast<Header*>(mapped_);
    found_ = header->mark.load(std::memory_order_acquire) == kMark;
    if (found_ && (header->layout != layout || header->bytes != bytes_)) {
      munmap(mapped_, static_cast<size_t>(size));
      throw SystemError(EINVAL,
                        fmt::format("'{}' holds the values of another program; delete it to begin anew", path));
    }
    header->layout = layout;
    header->bytes = bytes_;
    header->mark.store(kMark, std::memory_order_release);
  } catch (...) {
    close(file_);
    throw;
  }
}

SharedArena::~SharedArena() {
  munmap(mapped_, static_cast<size_t>(kHeaderBytes + bytes_));
  close(file_);
}

std::byte* SharedArena::base() const { return mapped_ + kHeaderBytes; }

}  // namespace heddle::device
