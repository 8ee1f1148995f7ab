// The arena of a CUDA device, and that of values on the host.
//
// Addresses for the whole capacity are reserved at once and never change. Memory is put behind them as the program
// first reaches it. So the arena holds the high water of the program, and the rest stays free for libraries.
#pragma once

#include <vector>

#include "heddle/device/arena.h"
#include "heddle/device/cuda/cuda_check.h"
#include "heddle/device/host/shared_arena.h"

namespace heddle::device {

/// The devices that ranks of this process have opened. Those that reach each other's memory are given each other's
/// arenas: copies from peer to peer then go over the link between them, and not through the host. Ranks that are
/// threads open their devices before any of them takes memory.
class OpenDevice {
 public:
  OpenDevice(int ordinal, int ranks);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  /// The device itself and those of them that reach its memory.
  static std::vector<int> reaching(int ordinal);
  /// True if a run of several ranks has the device: kernels of messages may hold some of its multiprocessors.
  static bool beside_messages(int ordinal);
  /// Ranks of this process that have a device open.
  static int ranks();

 private:
  int ordinal_;
};

class CudaArena : public Arena {
 public:
  CudaArena(int ordinal, int64_t capacity_bytes);
  ~CudaArena() override;
  CudaArena(const CudaArena&) = delete;
  CudaArena& operator=(const CudaArena&) = delete;

  std::byte* base() const override { return reinterpret_cast<std::byte*>(base_); }
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  void reach(int64_t bytes) override;
  int64_t held_bytes() const override { return held_bytes_; }
  void poison() override;

 private:
  void fill(int64_t from, int64_t bytes);
  int ordinal_;
  bool poisoned_ = false;
  int64_t capacity_bytes_, reserved_bytes_ = 0, held_bytes_ = 0, step_bytes_ = 0;
  CUdeviceptr base_ = 0;
  struct Part {
    CUmemGenericAllocationHandle handle;
    int64_t offset, bytes;
  };
  std::vector<Part> parts_;
};

/// Page-locked memory of the host, from which copies run on the copy engines.
class PinnedArena : public Arena {
 public:
  explicit PinnedArena(int64_t capacity_bytes);
  ~PinnedArena() override;
  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  std::byte* base() const override { return base_; }
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  void reach(int64_t bytes) override;
  int64_t held_bytes() const override { return held_bytes_; }
  void poison() override;

 private:
  std::byte* base_ = nullptr;
  int64_t capacity_bytes_, held_bytes_ = 0;
  bool poisoned_ = false;
};

/// The bytes from here on that lie in one step, or no end where `at` is in no PinnedArena. CUDA refuses a copy
/// across the seam of two steps in which pages were locked.
int64_t bytes_to_seam(const void* at);

/// Memory that outlives the process, page-locked while this one has it.
class PinnedSharedArena : public SharedArena {
 public:
  PinnedSharedArena(const std::string& path, int64_t bytes, uint64_t layout);
  ~PinnedSharedArena() override;
};

}  // namespace heddle::device
