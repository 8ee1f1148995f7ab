#include "heddle/device/host/host_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "heddle/base/error.h"

namespace heddle::device {

HostArena::HostArena(int64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {
  void* mapped = mmap(nullptr, static_cast<size_t>(capacity_bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    throw SystemError(
        errno, fmt::format("cannot map {} bytes of device memory: {}", capacity_bytes, std::strerror(errno)));
  }
  base_ = static_cast<std::byte*>(mapped);
  madvise(mapped, static_cast<size_t>(capacity_bytes), MADV_HUGEPAGE);
}

HostArena::~HostArena() { munmap(base_, static_cast<size_t>(capacity_bytes_)); }

void HostArena::poison() { std::memset(base_, 0xff, static_cast<size_t>(capacity_bytes_)); }

int64_t host_memory_bytes() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  int64_t group = 0;
  if (limit >> group && group > 0 && group < bytes) bytes = group;
  return bytes;
}

}  // namespace heddle::device
