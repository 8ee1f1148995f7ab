#include "heddle/device/cuda/cuda_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

namespace heddle::device {

namespace {

constexpr int64_t kStepBytes = int64_t{64} << 20;  // that an arena grows by at least

/// Arenas of the host whose pages are locked step by step: first and last address.
struct Locked {
  std::mutex mutex;
  std::map<const std::byte*, const std::byte*> arenas;
};
Locked& locked() {
  static Locked one;
  return one;
}

struct OpenDevices {
  std::mutex mutex;
  std::map<int, int> ranks;         // by device, how many have opened it
  std::map<int, bool> in_messages;  // likewise, whether they have others to talk to
};
OpenDevices& open_devices() {
  static OpenDevices one;
  return one;
}

int64_t rounded_up(int64_t bytes, int64_t to) { return (bytes + to - 1) / to * to; }

CUmemAllocationProp memory_of(int ordinal) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = ordinal;
  // So that other processes and network cards can be given the memory, where the device can do that.
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  int direct = 0;
  check_cuda(cudaDeviceGetAttribute(&direct, cudaDevAttrGPUDirectRDMASupported, ordinal),
             "asking what network cards can reach");
  prop.allocFlags.gpuDirectRDMACapable = direct != 0 ? 1 : 0;
  return prop;
}

}  // namespace

OpenDevice::OpenDevice(int ordinal, int ranks) : ordinal_(ordinal) {
  const std::lock_guard lock(open_devices().mutex);
  ++open_devices().ranks[ordinal_];
  open_devices().in_messages[ordinal_] = ranks > 1;
}

OpenDevice::~OpenDevice() {
  const std::lock_guard lock(open_devices().mutex);
  if (--open_devices().ranks[ordinal_] == 0) open_devices().ranks.erase(ordinal_);
}

bool OpenDevice::beside_messages(int ordinal) {
  const std::lock_guard lock(open_devices().mutex);
  return open_devices().in_messages[ordinal];
}

int OpenDevice::ranks() {
  const std::lock_guard lock(open_devices().mutex);
  int all = 0;
  for (const auto& [ordinal, ranks] : open_devices().ranks) all += ranks;
  return all;
}

std::vector<int> OpenDevice::reaching(int ordinal) {
  std::vector<int> all{ordinal};
  const std::lock_guard lock(open_devices().mutex);
  for (const auto& [peer, ranks] : open_devices().ranks) {
    int reaches = 0;
    if (peer != ordinal)
      check_cuda(cudaDeviceCanAccessPeer(&reaches, peer, ordinal), "asking which devices reach each other");
    if (reaches != 0) all.push_back(peer);
  }
  return all;
}

CudaArena::CudaArena(int ordinal, int64_t capacity_bytes) : ordinal_(ordinal), capacity_bytes_(capacity_bytes) {
  const CUmemAllocationProp prop = memory_of(ordinal_);
  size_t granularity = 0;
  check_driver(driver().granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "asking for the granularity of memory");
  step_bytes_ = rounded_up(kStepBytes, static_cast<int64_t>(granularity));
  reserved_bytes_ = rounded_up(std::max<int64_t>(capacity_bytes, 1), step_bytes_);
  check_driver(driver().address_reserve(&base_, static_cast<size_t>(reserved_bytes_), 0, 0, 0),
               "reserving the addresses of the arena");
}

CudaArena::~CudaArena() {
  cudaDeviceSynchronize();
  for (const Part& part : parts_) {
    driver().unmap(base_ + static_cast<CUdeviceptr>(part.offset), static_cast<size_t>(part.bytes));
    driver().release(part.handle);
  }
  driver().address_free(base_, static_cast<size_t>(reserved_bytes_));
}

void CudaArena::reach(int64_t bytes) {
  if (bytes <= held_bytes_) return;
  Part part{0, held_bytes_, rounded_up(bytes - held_bytes_, step_bytes_)};
  CUmemAllocationProp prop = memory_of(ordinal_);
  CUresult created = driver().create(&part.handle, static_cast<size_t>(part.bytes), &prop, 0);
  if (created == CUDA_ERROR_NOT_SUPPORTED) {  // in WSL and on parts of a device memory is for one process alone
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    prop.allocFlags.gpuDirectRDMACapable = 0;
    created = driver().create(&part.handle, static_cast<size_t>(part.bytes), &prop, 0);
  }
  if (created == CUDA_ERROR_OUT_OF_MEMORY) {
    throw SystemError(ENOMEM,
                      fmt::format("device {} has no {} MiB more for the arena, which holds {} MiB of at most {}: "
                                  "set device.memory_bytes to what is free",
                                  ordinal_, part.bytes >> 20, held_bytes_ >> 20, capacity_bytes_ >> 20));
  }
  check_driver(created, "taking memory for the arena");
  const CUdeviceptr at = base_ + static_cast<CUdeviceptr>(part.offset);
  CUresult status = driver().map(at, static_cast<size_t>(part.bytes), 0, part.handle, 0);
  if (status != CUDA_SUCCESS) {
    driver().release(part.handle);
    check_driver(status, "mapping memory into the arena");
  }
  parts_.push_back(part);
  held_bytes_ += part.bytes;
  std::vector<CUmemAccessDesc> access;
  for (const int device : OpenDevice::reaching(ordinal_)) {
    access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  check_driver(driver().set_access(at, static_cast<size_t>(part.bytes), access.data(), access.size()),
               "opening memory of the arena");
  if (poisoned_) fill(part.offset, part.bytes);
}

void CudaArena::fill(int64_t from, int64_t bytes) {
  check_cuda(cudaMemset(base() + from, 0xff, static_cast<size_t>(bytes)), "poisoning the arena");
  check_cuda(cudaDeviceSynchronize(), "poisoning the arena");
}

void CudaArena::poison() {
  poisoned_ = true;
  if (held_bytes_ > 0) fill(0, held_bytes_);
}

int64_t bytes_to_seam(const void* at) {
  const auto* address = static_cast<const std::byte*>(at);
  const std::lock_guard lock(locked().mutex);
  const auto after = locked().arenas.upper_bound(address);
  if (after == locked().arenas.begin()) return std::numeric_limits<int64_t>::max();
  const auto& [first, last] = *std::prev(after);
  if (address >= last) return std::numeric_limits<int64_t>::max();
  return kStepBytes - (address - first) % kStepBytes;
}

// Addresses are reserved at once as in the device's arena; pages are locked as they are reached.
PinnedArena::PinnedArena(int64_t capacity_bytes) : capacity_bytes_(rounded_up(capacity_bytes, kStepBytes)) {
  void* mapped = mmap(nullptr, static_cast<size_t>(capacity_bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    throw SystemError(errno,
                      fmt::format("cannot map {} bytes of host memory: {}", capacity_bytes_, std::strerror(errno)));
  }
  base_ = static_cast<std::byte*>(mapped);
  const std::lock_guard lock(locked().mutex);
  locked().arenas[base_] = base_ + capacity_bytes_;
}

PinnedArena::~PinnedArena() {
  cudaDeviceSynchronize();
  {
    const std::lock_guard lock(locked().mutex);
    locked().arenas.erase(base_);
  }
  for (int64_t at = 0; at < held_bytes_; at += kStepBytes) cudaHostUnregister(base_ + at);
  munmap(base_, static_cast<size_t>(capacity_bytes_));
}

void PinnedArena::reach(int64_t bytes) {
  while (held_bytes_ < bytes) {
    check_cuda(cudaHostRegister(base_ + held_bytes_, static_cast<size_t>(kStepBytes), cudaHostRegisterDefault),
               "locking pages of the host");
    if (poisoned_) std::memset(base_ + held_bytes_, 0xff, static_cast<size_t>(kStepBytes));
    held_bytes_ += kStepBytes;
  }
}

void PinnedArena::poison() {
  poisoned_ = true;
  std::memset(base_, 0xff, static_cast<size_t>(held_bytes_));
}

PinnedSharedArena::PinnedSharedArena(const std::string& path, int64_t bytes, uint64_t layout)
    : SharedArena(path, bytes, layout) {
  check_cuda(cudaHostRegister(base(), static_cast<size_t>(capacity_bytes()), cudaHostRegisterPortable),
             "page-locking memory that outlives the process");
}

PinnedSharedArena::~PinnedSharedArena() { cudaHostUnregister(base()); }

}  // namespace heddle::device
