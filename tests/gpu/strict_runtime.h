// A CUDA runtime and an NCCL of the tests' own, over memory of the host, as strict as their documents say they may
// be: streams are threads, what they wait for they wait for; launches and copies that a device refuses are refused;
// two ranks of a communicator connect at their first message, for which the host waits.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::strict {

/// What the runtime was told or asked, for the tests.
struct Seen {
  std::string max_connections, module_loading;  // in the environment, at the first call
  size_t stack_bytes = 0;
  int device = -1;
  std::vector<CUmemAllocationProp> allocations;
  int launches = 0, copies = 0;
};
Seen& seen();

/// The device of this thread, where it is a rank beside others; less than 0: that of the process.
int& device_of_thread();

/// Static shared memory of a kernel, which is any address.
void declare_kernel(const void* kernel, int64_t static_bytes);
/// A kernel of which a launch holds every multiprocessor until it is released: meanwhile no other kernel begins.
void declare_holder(const void* kernel);
void release_holders();
/// Sleeps until no kernel holds them all: for what stands for a kernel of a library.
void await_units();

/// Where a host waits longer for another in NCCL, its call fails.
inline constexpr double kPatienceSeconds = 3;

}  // namespace heddle::strict
