// In the emulator kernels read the host's memory: the device is the CPU, and nothing is to be done.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <mutex>

#include "heddle/device/device.h"
#include "tests/gpu/emulator.h"
#include "tests/gpu/on_device.h"
#include "tests/gpu/opened_seats.h"

namespace heddle {

// In the place of the library's.
namespace device {
void tell_cuda_driver(bool) {}
Support cuda_available() { return Support::yes(); }
std::unique_ptr<Device> cuda_device(const Seat& seat) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  test::opened_seats().push_back(seat);
  return host_device();
}
}  // namespace device

namespace test {
std::vector<device::Seat>& opened_seats() {
  static std::vector<device::Seat> all;
  return all;
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
