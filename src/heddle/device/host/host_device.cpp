// The CPU as a device.
#include <cstring>

#include "heddle/device/device.h"
#include "heddle/device/host/host_arena.h"
#include "heddle/device/host/host_memory.h"
#include "heddle/device/host/host_stream.h"

namespace heddle::device {

namespace {

class HostDevice : public Device {
 public:
  std::unique_ptr<Arena> arena(int64_t bytes, int64_t predicted_bytes) override {
    return std::make_unique<HostArena>(bytes, predicted_bytes);
  }
  std::unique_ptr<Arena> host_arena(int64_t bytes) override { return std::make_unique<HostArena>(bytes); }
  std::unique_ptr<Stream> stream(const std::string& name, int threads) override {
    return std::make_unique<HostStream>(name, threads);
  }
  int64_t memory_bytes() const override { return device::host_memory_bytes(); }
  int64_t host_memory_bytes() const override { return device::host_memory_bytes(); }
  bool shares_memory() const override { return true; }
  void download(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void upload(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
};

}  // namespace

std::unique_ptr<Device> host_device() { return std::make_unique<HostDevice>(); }

}  // namespace heddle::device
