// In the emulator kernels read the host's memory: the device is the CPU, and nothing is to be done. Where a test
// asks for it, the device has memory of its own, which the host does not reach.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "heddle/device/device.h"
#include "tests/gpu/device_memory.h"
#include "tests/gpu/emulator.h"
#include "tests/gpu/on_device.h"
#include "tests/gpu/opened_seats.h"

namespace heddle {

namespace {

class ApartArena : public device::Arena {
 public:
  explicit ApartArena(int64_t bytes) : bytes_(bytes) {
    void* at =
        mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw SystemError(errno, "no addresses for an arena");
    base_ = static_cast<std::byte*>(at);
    test::keep_from_host(base_, static_cast<size_t>(bytes));
  }
  ~ApartArena() override {
    test::give_to_host(base_);
    munmap(base_, static_cast<size_t>(bytes_));
  }
  ApartArena(const ApartArena&) = delete;
  ApartArena& operator=(const ApartArena&) = delete;
  std::byte* base() const override { return base_; }
  int64_t capacity_bytes() const override { return bytes_; }
  void reach(int64_t bytes) override { reached_ = std::max(reached_, bytes); }
  void poison() override {
    const test::OnDevice here;
    std::memset(base_, 0xff, static_cast<size_t>(reached_));
  }

 private:
  int64_t bytes_, reached_ = 0;
  std::byte* base_ = nullptr;
};

class ApartDevice : public device::Device {
 public:
  std::unique_ptr<device::Arena> arena(int64_t bytes, int64_t) override {
    return std::make_unique<ApartArena>(bytes);
  }
  std::unique_ptr<device::Arena> host_arena(int64_t bytes) override { return host_->host_arena(bytes); }
  std::unique_ptr<device::Stream> stream(const std::string& name, int threads) override {
    return host_->stream(name, threads);
  }
  int64_t memory_bytes() const override { return int64_t{1} << 30; }
  int64_t host_memory_bytes() const override { return host_->host_memory_bytes(); }
  bool shares_memory() const override { return false; }
  void download(void* to, const void* from, int64_t bytes) override { upload(to, from, bytes); }
  void upload(void* to, const void* from, int64_t bytes) override {
    const test::OnDevice here;
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }

 private:
  std::unique_ptr<device::Device> host_ = device::host_device();
};

}  // namespace

// In the place of the library's.
namespace device {
void tell_cuda_driver(bool) {}
Support cuda_available() { return Support::yes(); }
std::unique_ptr<Device> cuda_device(const Seat& seat) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  test::opened_seats().push_back(seat);
  if (test::memory_apart()) return std::make_unique<ApartDevice>();
  return host_device();
}
}  // namespace device

namespace test {
std::vector<device::Seat>& opened_seats() {
  static std::vector<device::Seat> all;
  return all;
}
bool& memory_apart() {
  static bool apart = false;
  return apart;
}
}  // namespace test

namespace op_runner {

Support device_there() { return Support::yes(); }

namespace {

/// Zeros that take memory only where they are touched.
class Sparse : public Room {
 public:
  explicit Sparse(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw SystemError(errno, "no addresses for a large tensor");
    at_ = static_cast<std::byte*>(at);
  }
  ~Sparse() override { munmap(at_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  std::byte* at() const override { return at_; }
  void put(int64_t offset, const void* from, int64_t bytes) override {
    std::memcpy(at_ + offset, from, static_cast<size_t>(bytes));
  }
  void get(void* to, int64_t offset, int64_t bytes) const override {
    std::memcpy(to, at_ + offset, static_cast<size_t>(bytes));
  }

 private:
  size_t bytes_;
  std::byte* at_;
};

}  // namespace

std::unique_ptr<Room> room(int64_t bytes) { return std::make_unique<Sparse>(bytes); }
Support room_for(int64_t) { return Support::yes(); }

void run_in_rooms(const kernels::KernelEntry& kernel, const device::KernelCall& call) {
  const kernels::cuda::emulator::SomeBlocks some(10, 5);
  kernel.run(call);
}

}  // namespace op_runner
}  // namespace heddle
