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

int device_in_use() {
  int device = 0;
  device::check_cuda(cudaGetDevice(&device), "asking for the device");
  return device;
}

struct HopperDevice {
  int processors = 0;                            // 0: another device
  std::array<std::string, kKernels> left_out{};  // why, by kernel
};

/// The devices that this process has asked about. A launch asks for the one in use.
struct HopperDevices {
  std::mutex mutex;
  std::map<int, HopperDevice> known;

  HopperDevice& in_use() {
    const int device = device_in_use();
    const auto [at, is_new] = known.try_emplace(device);
    if (is_new) {
      const auto attribute = [&](cudaDeviceAttr which) {
        int value = 0;
        device::check_cuda(cudaDeviceGetAttribute(&value, which, device), "asking for the device");
        return value;
      };
      if (attribute(cudaDevAttrComputeCapabilityMajor) == 9 && attribute(cudaDevAttrComputeCapabilityMinor) == 0)
        at->second.processors = attribute(cudaDevAttrMultiProcessorCount);
    }
    return at->second;
  }
};
HopperDevices& devices() {
  static HopperDevices all;
  return all;
}

bool has_devices() {
  static const bool there = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  }();
  return there;
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
  const std::lock_guard lock(devices().mutex);
  return devices().in_use().left_out[static_cast<size_t>(kernel)];
}

void leave_out(HopperKernel kernel, std::string reason) {
  const std::lock_guard lock(devices().mutex);
  devices().in_use().left_out[static_cast<size_t>(kernel)] = std::move(reason);
}

int processors_of_hopper() {
  if (!has_devices()) return 0;
  const std::lock_guard lock(devices().mutex);
  return devices().in_use().processors;
}

int processors_for(HopperKernel kernel) {
  if (!wanted(kernel) || !has_devices()) return 0;
  const std::lock_guard lock(devices().mutex);
  const HopperDevice& device = devices().in_use();
  return device.left_out[static_cast<size_t>(kernel)].empty() ? device.processors : 0;
}

int64_t hopper_blocks(int64_t tiles, int processors) {
  return tile_blocks(tiles, processors, device::OpenDevice::beside_messages(device_in_use()));
}

}  // namespace heddle::kernels::cuda
