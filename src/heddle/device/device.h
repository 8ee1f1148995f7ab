// What a program runs on: its memories, its streams, and the way between its memory and the host's.
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
  /// With addresses for `capacity_bytes`, of which no more than `foretold_bytes` (0: all) are expected to be
  /// reached: what is reached beyond is taken only where the machine has it left, and where so many addresses can't
  /// be had, those are enough.
  virtual std::unique_ptr<Arena> arena(int64_t capacity_bytes, int64_t foretold_bytes = 0) = 0;
  /// Of values that lie on the host; copies between both arenas run beside kernels.
  virtual std::unique_ptr<Arena> host_arena(int64_t capacity_bytes) = 0;
  /// Of values that outlive the process, in a file; copies to it run beside kernels.
  virtual std::unique_ptr<SharedArena> shared_arena(const std::string& path, int64_t bytes, uint64_t layout) {
    return std::make_unique<SharedArena>(path, bytes, layout);
  }
  /// `threads`: size of the OpenMP team of its kernels, where these run on the CPU.
  virtual std::unique_ptr<Stream> stream(const std::string& name, int threads) = 0;
  /// Whether streams made from now on may replay runs of launches that repeat. No more than a wish.
  virtual void set_graphs(bool) {}
  /// What an arena may hope for.
  virtual int64_t memory_bytes() const = 0;
  virtual int64_t host_memory_bytes() const = 0;
  /// Whether the host reads and writes the arena by its addresses.
  virtual bool shares_memory() const = 0;
  /// Between the arena and memory of the host; ordered after all that streams have ended. Blocking.
  virtual void download(void* to, const void* from, int64_t bytes) = 0;
  virtual void upload(void* to, const void* from, int64_t bytes) = 0;
};

/// Who wants a device: the how-manieth rank of its host, of how many ranks in all.
struct Seat {
  int on_host = 0, ranks = 1;
};

std::unique_ptr<Device> host_device();
/// The one that HEDDLE_DEVICE names, or else number `on_host` modulo their count. ConfigError, in one line, where
/// there is none.
std::unique_ptr<Device> cuda_device(const Seat& seat);
/// Whether there is a CUDA device that this build can use, or why not.
Support cuda_available();

}  // namespace heddle::device
