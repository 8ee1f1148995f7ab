#include "heddle/kernels/cuda/hopper/processors.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string_view>

#include "heddle/device/cuda/cuda_arena.h"
#include "heddle/kernels/cuda/tile_blocks.h"

namespace heddle::kernels::cuda {

bool asked_for(const char* variable) {
  const char* word = std::getenv(variable);
  return word != nullptr && std::string_view(word) == "1";
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
  int device = 0;
  device::check_cuda(cudaGetDevice(&device), "asking for the device");
  return tile_blocks(tiles, processors, device::OpenDevice::beside_messages(device));
}

}  // namespace heddle::kernels::cuda
