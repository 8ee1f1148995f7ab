// How the host puts a kernel on a stream. A kernel takes one argument, a plain struct; where the number of blocks
// is zero nothing happens. What is declared here is defined by the device (device_launch.cpp) or by the emulator.
#pragma once

#include <cstdint>
#include <type_traits>

#include "heddle/device/kernel_call.h"
#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

struct LaunchShape {
  int64_t blocks_x = 1, blocks_y = 1, blocks_z = 1;
  int threads = 256;
  int64_t shared_bytes = 0;  // dynamic
};

/// Puts the kernel on the stream. `call` runs it as a function, for the emulator.
void launch_on_device(const LaunchShape& shape, const void* kernel, void (*call)(const void*, const void*),
                      const void* args, void* stream);
/// From memory of the host, which may change as soon as this returns.
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
  launch_on_device(
      shape, reinterpret_cast<const void*>(kernel),
      [](const void* f, const void* a) {
        reinterpret_cast<void (*)(Args)>(const_cast<void*>(f))(*static_cast<const Args*>(a));
      },
      &args, stream);
}

constexpr int64_t blocks_for(int64_t count, int64_t each) { return (count + each - 1) / each; }

}  // namespace heddle::kernels::cuda
