// The device that a program runs on: its memories, its streams, and the way between its memory and the host's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/device/arena.h"
#include "heddle/device/host/shared_arena.h"
#include "heddle/device/stream.h"

namespace heddle::device {

class Device {
 public:
  virtual ~Device() = default;
  /// An arena with addresses for `capacity_bytes`, of which no more than `predicted_bytes` (0: all) are expected to
  /// be reached. What is reached beyond is taken only where the machine has it left. Where so many addresses can't
  /// be had, the expected ones are enough.
  virtual std::unique_ptr<Arena> arena(int64_t capacity_bytes, int64_t predicted_bytes = 0) = 0;
  /// The arena of values that lie on the host; copies between both arenas run beside kernels.
  virtual std::unique_ptr<Arena> host_arena(int64_t capacity_bytes) = 0;
  /// The arena of values that outlive the process, in a file; copies to it run beside kernels.
  virtual std::unique_ptr<SharedArena> shared_arena(const std::string& path, int64_t bytes, uint64_t layout) {
    return std::make_unique<SharedArena>(path, bytes, layout);
  }
  /// `threads`: size of the OpenMP team of its kernels, where these run on the CPU.
  virtual std::unique_ptr<Stream> stream(const std::string& name, int threads) = 0;
  /// Lets streams made from now on replay runs of launches that repeat. No more than a wish.
  virtual void set_graphs(bool) {}
  /// Bytes that an arena may hope for.
  virtual int64_t memory_bytes() const = 0;
  virtual int64_t host_memory_bytes() const = 0;
  /// True if the host reads and writes the arena by its addresses.
  virtual bool shares_memory() const = 0;
  /// Between the arena and memory of the host; ordered after all that streams have ended. Blocking.
  virtual void download(void* to, const void* from, int64_t bytes) = 0;
  virtual void upload(void* to, const void* from, int64_t bytes) = 0;
};

/// The rank that wants a device: its number on its host, and how many ranks there are in all.
struct Seat {
  int on_host = 0, ranks = 1;
  bool operator==(const Seat&) const = default;
};

std::unique_ptr<Device> host_device();
/// The one that HEDDLE_DEVICE names, or else number `on_host` modulo their count. ConfigError, in one line, where
/// there is none.
std::unique_ptr<Device> cuda_device(const Seat& seat);
/// Tells CUDA's driver, through the environment, how this process uses it; what the user has set stands. The driver
/// reads that once, as it starts: this comes before whatever touches it. `several_ranks`: of a job of more than
/// one.
void tell_cuda_driver(bool several_ranks);
/// Support::yes if there is a CUDA device that this build can use, else why not.
Support cuda_available();

}  // namespace heddle::device
