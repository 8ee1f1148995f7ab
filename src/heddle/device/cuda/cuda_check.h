// Errors of the CUDA runtime and driver as exceptions.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "heddle/base/error.h"

namespace heddle::device {

constexpr int kLeastCapability = 8;  // major, of a device that kernels are compiled for

/// SystemError that says what was being done.
void check_cuda(cudaError_t status, const char* doing);
void check_driver(CUresult status, const char* doing);

/// True if what stands before the last record of an event has ended; so has an event that was never recorded.
/// SystemError where the device has failed. CUDA keeps its "not ready" as the last error of the thread. It is
/// cleared here, for the next launch that reads the last error would take it for its own.
bool reached(cudaEvent_t event);
/// Clears the last error of the thread: ahead of a launch whose success is read from it.
void forget_last_error();

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
