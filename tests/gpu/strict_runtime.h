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
  std::vector<int> opened;  // devices that were made current: each has a context of this process from then on
  std::vector<CUmemAllocationProp> allocations;
  int driver = CUDART_VERSION;
  int compute_mode = cudaComputeModeDefault;
  size_t taken_bytes = 0;       // of the device's memory, by other processes
  std::vector<int> reached_by;  // devices for which memory was opened last
  int launches = 0, copies = 0;
  int page_locks = 0;                       // of the host's memory, each of which may wait for the device
  bool waits_for_values = true;             // whether a stream can wait for a number
  bool capturing = false;                   // what every stream says of itself
  bool gives_memory_on = true;              // whether another process can be given the device's
  CUresult create_answers = CUDA_SUCCESS;   // what asking for memory of the device comes to
  cudaError_t event_answers = cudaSuccess;  // what asking for an event comes to, if no success
};
Seen& seen();

/// The device of this thread, where it is a rank beside others; less than 0: that of the process.
int& device_of_thread();

/// Whether it is memory of the host that was taken page-locked.
bool is_page_locked(const void* at);

/// Static shared memory of a kernel, which is any address.
void declare_kernel(const void* kernel, int64_t static_bytes);
/// A kernel of which a launch holds every multiprocessor until it is released: meanwhile no other kernel begins.
void declare_holder(const void* kernel);
void release_holders();
/// Puts on a stream what stands for a kernel, and may wait for other streams' as kernels of messages do.
void put_kernel(cudaStream_t stream, void (*call)(void*), void* data);
/// Sleeps until no kernel holds them all: for what stands for a kernel of a library.
void await_units();

/// Where a host waits longer for another in NCCL, its call fails.
inline constexpr double kPatienceSeconds = 3;

}  // namespace heddle::strict
