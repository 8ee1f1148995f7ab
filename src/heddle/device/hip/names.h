// CUDA's names that this program uses, by HIP's: a table, and below it what HIP has in another form. AMD's build
// reads it instead of CUDA's headers (cuda.h, cuda_runtime.h, cuda_runtime_api.h and cuda_bf16.h beside it),
// for kernels ahead of all else. Nothing else of the source knows HIP.
//
// Sources: HIP's runtime API 5.2 to 6.4 (hip_runtime_api.h), HIP porting guide. Warps of CDNA have 64 lanes.
#pragma once

#if defined(__HIPCC__) || defined(__HIP__)
#include <hip/hip_runtime.h>
#else
#include <hip/hip_runtime_api.h>
#endif

#include <cstdint>
#include <string_view>

// ---- Runtime

#define cudaDeviceCanAccessPeer hipDeviceCanAccessPeer
#define cudaDeviceGetStreamPriorityRange hipDeviceGetStreamPriorityRange
#define cudaDeviceProp hipDeviceProp_t
#define cudaDeviceSynchronize hipDeviceSynchronize
#define cudaErrorNotReady hipErrorNotReady
#define cudaErrorStreamCaptureUnsupported hipErrorStreamCaptureUnsupported
#define cudaError_t hipError_t
#define cudaEventCreate hipEventCreate
#define cudaEventCreateWithFlags hipEventCreateWithFlags
#define cudaEventDestroy hipEventDestroy
#define cudaEventDisableTiming hipEventDisableTiming
#define cudaEventElapsedTime hipEventElapsedTime
#define cudaEventQuery hipEventQuery
#define cudaEventRecord hipEventRecord
#define cudaEventSynchronize hipEventSynchronize
#define cudaEvent_t hipEvent_t
#define cudaFree hipFree
#define cudaFreeAsync hipFreeAsync
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define cudaFuncAttributes hipFuncAttributes
#define cudaFuncGetAttributes hipFuncGetAttributes
#define cudaFuncSetAttribute hipFuncSetAttribute
#define cudaGetDevice hipGetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaGetErrorName hipGetErrorName
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError
#define cudaGraphDestroy hipGraphDestroy
#define cudaGraphExecDestroy hipGraphExecDestroy
#define cudaGraphExec_t hipGraphExec_t
#define cudaGraphLaunch hipGraphLaunch
#define cudaGraph_t hipGraph_t
#define cudaHostRegister hipHostRegister
#define cudaHostRegisterDefault hipHostRegisterDefault
#define cudaHostRegisterPortable hipHostRegisterPortable
#define cudaHostUnregister hipHostUnregister
#define cudaLaunchHostFunc hipLaunchHostFunc
#define cudaLaunchKernel hipLaunchKernel
#define cudaMallocAsync hipMallocAsync
#define cudaMemGetInfo hipMemGetInfo
#define cudaMemcpy hipMemcpy
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyDefault hipMemcpyDefault
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemcpyPeerAsync hipMemcpyPeerAsync
#define cudaMemset hipMemset
#define cudaMemsetAsync hipMemsetAsync
#define cudaSetDevice hipSetDevice
#define cudaStreamBeginCapture hipStreamBeginCapture
#define cudaStreamCaptureModeThreadLocal hipStreamCaptureModeThreadLocal
#define cudaStreamCaptureStatus hipStreamCaptureStatus
#define cudaStreamCaptureStatusNone hipStreamCaptureStatusNone
#define cudaStreamCreateWithFlags hipStreamCreateWithFlags
#define cudaStreamCreateWithPriority hipStreamCreateWithPriority
#define cudaStreamDestroy hipStreamDestroy
#define cudaStreamEndCapture hipStreamEndCapture
#define cudaStreamIsCapturing hipStreamIsCapturing
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStreamWaitEvent hipStreamWaitEvent
#define cudaStream_t hipStream_t
#define cudaSuccess hipSuccess
// Attributes of devices, and their modes
#define cudaComputeModeExclusiveProcess hipComputeModeExclusiveProcess
#define cudaComputeModeProhibited hipComputeModeProhibited
#define cudaDevAttrComputeCapabilityMajor hipDeviceAttributeComputeCapabilityMajor
#define cudaDevAttrComputeMode hipDeviceAttributeComputeMode
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount

// ---- Driver

#define CUDA_ERROR_NOT_SUPPORTED hipErrorNotSupported
#define CUDA_ERROR_OUT_OF_MEMORY hipErrorOutOfMemory
#define CUDA_SUCCESS hipSuccess
#define CU_MEM_ACCESS_FLAGS_PROT_READWRITE hipMemAccessFlagsProtReadWrite
#define CU_MEM_ALLOCATION_TYPE_PINNED hipMemAllocationTypePinned
#define CU_MEM_ALLOC_GRANULARITY_RECOMMENDED hipMemAllocationGranularityRecommended
#define CU_MEM_HANDLE_TYPE_NONE hipMemHandleTypeNone
#define CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR hipMemHandleTypePosixFileDescriptor
#define CU_MEM_LOCATION_TYPE_DEVICE hipMemLocationTypeDevice
#define CU_STREAM_WAIT_VALUE_GEQ hipStreamWaitValueGte
#define CU_STREAM_WRITE_VALUE_DEFAULT 0
#define CUmemAccessDesc hipMemAccessDesc
#define CUmemGenericAllocationHandle hipMemGenericAllocationHandle_t
#define CUresult hipError_t
#define CUstream hipStream_t

// ---- What has another form

/// "5.2" as CUDA numbers releases: 5020.
inline hipError_t cuda_numbered(hipError_t status, int* version) {
  *version = *version / 10000000 * 1000 + *version / 100000 % 100 * 10;
  return status;
}
inline hipError_t cudaDriverGetVersion(int* version) {
  return cuda_numbered(hipDriverGetVersion(version), version);
}
inline hipError_t cudaRuntimeGetVersion(int* version) {
  return cuda_numbered(hipRuntimeGetVersion(version), version);
}

/// An attribute that HIP does not have: no device has it.
enum class NoAttribute { cudaDevAttrGPUDirectRDMASupported };
constexpr NoAttribute cudaDevAttrGPUDirectRDMASupported = NoAttribute::cudaDevAttrGPUDirectRDMASupported;
inline hipError_t cudaDeviceGetAttribute(int* value, NoAttribute, int) {
  *value = 0;
  return hipSuccess;
}
inline hipError_t cudaDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
  return hipDeviceGetAttribute(value, attribute, device);
}

/// ROCm grows the threads' local memory by itself.
constexpr int cudaLimitStackSize = 0;
inline hipError_t cudaDeviceSetLimit(int, size_t) { return hipSuccess; }

inline hipError_t cudaMallocHost(void** at, size_t bytes) { return hipHostMalloc(at, bytes, 0); }
inline hipError_t cudaGraphInstantiate(hipGraphExec_t* exec, hipGraph_t graph, unsigned long long) {
  return hipGraphInstantiate(exec, graph, nullptr, nullptr, 0);
}

using CUdeviceptr = unsigned long long;
struct CUmemAllocationProp {
  hipMemAllocationType type;
  hipMemAllocationHandleType requestedHandleTypes;
  hipMemLocation location;
  struct {
    unsigned char gpuDirectRDMACapable;
  } allocFlags;
};
inline hipMemAllocationProp hip_properties(const CUmemAllocationProp& of) {
  hipMemAllocationProp all{};
  all.type = of.type;
  all.requestedHandleType = of.requestedHandleTypes;
  all.location = of.location;
  return all;
}
inline void* address(CUdeviceptr at) { return reinterpret_cast<void*>(at); }
inline hipError_t cuMemAddressReserve(CUdeviceptr* at, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                      unsigned long long flags) {
  void* found = nullptr;
  const hipError_t status = hipMemAddressReserve(&found, bytes, alignment, address(wanted), flags);
  *at = reinterpret_cast<CUdeviceptr>(found);
  return status;
}
inline hipError_t cuMemAddressFree(CUdeviceptr at, size_t bytes) { return hipMemAddressFree(address(at), bytes); }
inline hipError_t cuMemCreate(hipMemGenericAllocationHandle_t* handle, size_t bytes, const CUmemAllocationProp* of,
                              unsigned long long flags) {
  const hipMemAllocationProp all = hip_properties(*of);
  return hipMemCreate(handle, bytes, &all, flags);
}
inline hipError_t cuMemRelease(hipMemGenericAllocationHandle_t handle) { return hipMemRelease(handle); }
inline hipError_t cuMemMap(CUdeviceptr at, size_t bytes, size_t offset, hipMemGenericAllocationHandle_t handle,
                           unsigned long long flags) {
  return hipMemMap(address(at), bytes, offset, handle, flags);
}
inline hipError_t cuMemUnmap(CUdeviceptr at, size_t bytes) { return hipMemUnmap(address(at), bytes); }
inline hipError_t cuMemSetAccess(CUdeviceptr at, size_t bytes, const hipMemAccessDesc* access, size_t count) {
  return hipMemSetAccess(address(at), bytes, access, count);
}
inline hipError_t cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* of,
                                                hipMemAllocationGranularity_flags option) {
  const hipMemAllocationProp all = hip_properties(*of);
  return hipMemGetAllocationGranularity(bytes, &all, option);
}
inline hipError_t cuGetErrorName(hipError_t status, const char** name) {
  *name = hipGetErrorName(status);
  return hipSuccess;
}
inline hipError_t cuStreamWaitValue32(hipStream_t stream, CUdeviceptr at, uint32_t value, unsigned flags) {
  return hipStreamWaitValue32(stream, address(at), value, flags, 0xffffffffu);
}
inline hipError_t cuStreamWriteValue32(hipStream_t stream, CUdeviceptr at, uint32_t value, unsigned flags) {
  return hipStreamWriteValue32(stream, address(at), value, flags);
}
/// Copies of tensors are Hopper's alone.
inline hipError_t cuTensorMapEncodeTiled() { return hipErrorNotSupported; }

/// The driver's functions by name: those above.
using cudaDriverEntryPointQueryResult = int;
constexpr int cudaDriverEntryPointSuccess = 0, cudaEnableDefault = 0;
inline hipError_t cudaGetDriverEntryPointByVersion(const char* name, void** at, unsigned, unsigned long long,
                                                   cudaDriverEntryPointQueryResult* result) {
  const struct {
    std::string_view name;
    void* function;
  } all[] = {{"cuMemAddressReserve", reinterpret_cast<void*>(&cuMemAddressReserve)},
             {"cuMemAddressFree", reinterpret_cast<void*>(&cuMemAddressFree)},
             {"cuMemCreate", reinterpret_cast<void*>(&cuMemCreate)},
             {"cuMemRelease", reinterpret_cast<void*>(&cuMemRelease)},
             {"cuMemMap", reinterpret_cast<void*>(&cuMemMap)},
             {"cuMemUnmap", reinterpret_cast<void*>(&cuMemUnmap)},
             {"cuMemSetAccess", reinterpret_cast<void*>(&cuMemSetAccess)},
             {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(&cuMemGetAllocationGranularity)},
             {"cuGetErrorName", reinterpret_cast<void*>(&cuGetErrorName)},
             {"cuStreamWaitValue32", reinterpret_cast<void*>(&cuStreamWaitValue32)},
             {"cuStreamWriteValue32", reinterpret_cast<void*>(&cuStreamWriteValue32)},
             {"cuTensorMapEncodeTiled", reinterpret_cast<void*>(&cuTensorMapEncodeTiled)}};
  *at = nullptr;
  for (const auto& one : all) {
    if (one.name == name) *at = one.function;
  }
  *result = *at == nullptr ? 1 : cudaDriverEntryPointSuccess;
  return hipSuccess;
}

// ---- The language of kernels

#if defined(__HIPCC__) || defined(__HIP__)
#define __CUDACC__ 1
// A mask of all lanes is the only one that kernels give. HIP 7 has these names itself.
#define __ballot_sync(mask, yes) __ballot(yes)
#define __shfl_sync(mask, value, lane) __shfl(value, lane)
#define __shfl_xor_sync(mask, value, step) __shfl_xor(value, step)
/// The lanes of a warp go in step; what they wrote must be seen.
inline __device__ void heddle_meet_in_warp() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
#define __syncwarp() heddle_meet_in_warp()
/// Rounds to nearest, ties to even; a NaN stays one.
inline __device__ uint16_t __float2bfloat16_rn(float x) {
  const uint32_t word = __float_as_uint(x);
  if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((word >> 16) | 0x40u);
  return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}
inline __device__ uint16_t __bfloat16_as_ushort(uint16_t bits) { return bits; }
#endif
