// Errors of the CUDA runtime and driver as exceptions.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "heddle/base/error.h"

namespace heddle::device {

/// SystemError that says what was being done.
void check_cuda(cudaError_t status, const char* doing);
void check_driver(CUresult status, const char* doing);

/// The entries of the driver that arenas and tensor copies need, found at run time: a machine without a driver
/// starts the program too.
struct Driver {
  decltype(&cuMemAddressReserve) address_reserve;
  decltype(&cuMemAddressFree) address_free;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuTensorMapEncodeTiled) tensor_map;
};
const Driver& driver();

}  // namespace heddle::device
