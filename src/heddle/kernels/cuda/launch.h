// Launches of kernels on a stream by the host. A kernel takes one argument, a plain struct; where the number of
// blocks is zero nothing happens. The device (device_launch.cpp) or the emulator defines what is declared here.
#pragma once

#include <cstdint>
#include <type_traits>

#include "heddle/base/error.h"
#include "heddle/device/kernel_call.h"
#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

struct LaunchShape {
  int64_t blocks_x = 1, blocks_y = 1, blocks_z = 1;
  int threads = 256;
  int64_t shared_bytes = 0;  // dynamic
};

// Limits that hold on every device that Heddle runs on (CUDA programming guide, technical specifications of 8.0 and
// 9.0; of 8.6 and 8.9 blocks have less shared memory, which the device itself refuses).
constexpr int64_t kMostBlocksX = 0x7fffffff, kMostBlocksYZ = 0xffff;
constexpr int kMostThreads = 1024;
constexpr int64_t kSharedByDefault = 48 << 10;  // of a block, static and dynamic, unless a kernel asks for more
constexpr int64_t kMostShared = 227 << 10;

/// InternalError where no device takes the shape.
inline void check_shape(const LaunchShape& shape) {
  HEDDLE_CHECK(shape.blocks_x <= kMostBlocksX && shape.blocks_y <= kMostBlocksYZ && shape.blocks_z <= kMostBlocksYZ,
               "a grid of {} × {} × {} blocks", shape.blocks_x, shape.blocks_y, shape.blocks_z);
  HEDDLE_CHECK(shape.threads > 0 && shape.threads <= kMostThreads && shape.shared_bytes <= kMostShared,
               "a block of {} threads and {} bytes", shape.threads, shape.shared_bytes);
}

/// Puts the kernel on the stream. `call` runs it as a function, for the emulator.
void launch_on_device(const LaunchShape& shape, const void* kernel, void (*call)(const void*, const void*),
                      const void* args, void* stream);
/// Copies from memory of the host, which may change as soon as this returns.
void upload(void* to, const void* from, int64_t bytes, void* stream);
/// Between any two memories, in the order of the stream.
void copy_bytes(void* to, const void* from, int64_t bytes, void* stream);
void fill_bytes(void* at, int byte, int64_t bytes, void* stream);
/// Calls `run` on a thread of the host once what stands before it on the stream has ended. It calls no CUDA.
void run_on_host(void (*run)(void*), void* with, void* stream);

template <class Args>
void launch(void (*kernel)(Args), const LaunchShape& shape, const std::type_identity_t<Args>& args, void* stream) {
  static_assert(std::is_trivially_copyable_v<Args>);
  if (shape.blocks_x * shape.blocks_y * shape.blocks_z == 0) return;
  check_shape(shape);
  launch_on_device(
      shape, reinterpret_cast<const void*>(kernel),
      [](const void* f, const void* a) {
        reinterpret_cast<void (*)(Args)>(const_cast<void*>(f))(*static_cast<const Args*>(a));
      },
      &args, stream);
}

constexpr int64_t blocks_for(int64_t count, int64_t each) { return (count + each - 1) / each; }

}  // namespace heddle::kernels::cuda
