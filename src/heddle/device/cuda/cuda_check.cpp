#include "heddle/device/cuda/cuda_check.h"

namespace heddle::device {

void check_cuda(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return;
  throw SystemError(static_cast<int>(status),
                    fmt::format("CUDA: {}: {} ({})", doing, cudaGetErrorString(status), cudaGetErrorName(status)));
}

void check_driver(CUresult status, const char* doing) {
  if (status == CUDA_SUCCESS) return;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const char* name = nullptr;
  if (cudaGetDriverEntryPointByVersion("cuGetErrorName", &found, 12000, cudaEnableDefault, &result) ==
          cudaSuccess &&
      found != nullptr)
    reinterpret_cast<decltype(&cuGetErrorName)>(found)(status, &name);
  throw SystemError(static_cast<int>(status),
                    fmt::format("CUDA driver: {}: error {}{}", doing, static_cast<int>(status),
                                name == nullptr ? "" : fmt::format(" ({})", name)));
}

bool reached(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status != cudaErrorNotReady) {
    check_cuda(status, "asking whether an event is reached");
    return true;
  }
  forget_last_error();
  return false;
}

void forget_last_error() { static_cast<void>(cudaGetLastError()); }

namespace {

template <class Function>
void find(Function& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result), name);
  if (found == nullptr || result != cudaDriverEntryPointSuccess) {
    throw SystemError(static_cast<int>(result), fmt::format("the CUDA driver has no {}", name));
  }
  function = reinterpret_cast<Function>(found);
}

}  // namespace

const Driver& driver() {
  static const Driver entries = [] {
    Driver d{};
    find(d.address_reserve, "cuMemAddressReserve");
    find(d.address_free, "cuMemAddressFree");
    find(d.create, "cuMemCreate");
    find(d.release, "cuMemRelease");
    find(d.map, "cuMemMap");
    find(d.unmap, "cuMemUnmap");
    find(d.set_access, "cuMemSetAccess");
    find(d.granularity, "cuMemGetAllocationGranularity");
    find(d.tensor_map, "cuTensorMapEncodeTiled");
    return d;
  }();
  return entries;
}

}  // namespace heddle::device
