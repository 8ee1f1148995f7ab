#include "heddle/kernels/cuda/hopper/processors.h"

#include <cuda_runtime_api.h>

#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "heddle/device/cuda/cuda_arena.h"
#include "heddle/kernels/cuda/tile_blocks.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int kKernels = 3;

/// The reasons why kernels are left out, by device of this process.
struct LeftOut {
  std::mutex mutex;
  std::map<int, std::array<std::string, kKernels>> reasons;
};
LeftOut& left_out() {
  static LeftOut all;
  return all;
}

int device_in_use() {
  int device = 0;
  device::check_cuda(cudaGetDevice(&device), "asking for the device");
  return device;
}

}  // namespace

bool wanted(HopperKernel kernel) {
  constexpr const char* kVariables[kKernels] = {"HEDDLE_WGMMA", "HEDDLE_CUTLASS", "HEDDLE_WGMMA_FP8"};
  static const auto all = [&] {
    std::array<bool, kKernels> found;
    for (int i = 0; i < kKernels; ++i) {
      const char* word = std::getenv(kVariables[i]);
      found[static_cast<size_t>(i)] = word == nullptr || std::string_view(word) != "0";
    }
    return found;
  }();
  return all[static_cast<size_t>(kernel)];
}

std::string failure_of(HopperKernel kernel) {
  const int device = device_in_use();
  const std::lock_guard lock(left_out().mutex);
  const auto at = left_out().reasons.find(device);
  return at == left_out().reasons.end() ? "" : at->second[static_cast<size_t>(kernel)];
}

void leave_out(HopperKernel kernel, std::string reason) {
  const int device = device_in_use();
  const std::lock_guard lock(left_out().mutex);
  left_out().reasons[device][static_cast<size_t>(kernel)] = std::move(reason);
}

int processors_for(HopperKernel kernel) {
  if (!wanted(kernel)) return 0;
  const int processors = processors_of_hopper();
  return processors > 0 && failure_of(kernel).empty() ? processors : 0;
}

int processors_of_hopper() {
  int count = 0, device = 0, major = 0, minor = 0, processors = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return 0;
  device::check_cuda(cudaGetDevice(&device), "asking for the device");
  device::check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "asking for it");
  device::check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "asking for it");
  device::check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), "asking for it");
  return major == 9 && minor == 0 ? processors : 0;
}

int64_t hopper_blocks(int64_t tiles, int processors) {
  return tile_blocks(tiles, processors, device::OpenDevice::beside_messages(device_in_use()));
}

}  // namespace heddle::kernels::cuda
