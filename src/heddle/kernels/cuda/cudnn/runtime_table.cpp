#include "heddle/kernels/cuda/cudnn/runtime_table.h"

#include <cuda_runtime_api.h>

#include <map>

namespace heddle::kernels::cuda {

void* runtime_function(std::string_view name) {
#define HEDDLE_ROW(function) \
  { #function, reinterpret_cast < void*>(function) }
  static const std::map<std::string_view, void*> table {
    HEDDLE_ROW(cudaDeviceGetAttribute), HEDDLE_ROW(cudaDeviceSynchronize), HEDDLE_ROW(cudaEventCreate),
        HEDDLE_ROW(cudaEventDestroy), HEDDLE_ROW(cudaEventElapsedTime), HEDDLE_ROW(cudaEventRecord),
        HEDDLE_ROW(cudaEventSynchronize), HEDDLE_ROW(cudaFree), HEDDLE_ROW(cudaGetDevice),
        HEDDLE_ROW(cudaGetDeviceProperties), HEDDLE_ROW(cudaGetDriverEntryPointByVersion),
        HEDDLE_ROW(cudaGetErrorString), HEDDLE_ROW(cudaGetLastError), HEDDLE_ROW(cudaGraphAddChildGraphNode),
        HEDDLE_ROW(cudaGraphAddMemcpyNode1D), HEDDLE_ROW(cudaGraphAddMemsetNode),
        HEDDLE_ROW(cudaGraphChildGraphNodeGetGraph), HEDDLE_ROW(cudaGraphCreate), HEDDLE_ROW(cudaGraphDestroy),
        HEDDLE_ROW(cudaGraphGetNodes), HEDDLE_ROW(cudaGraphGetRootNodes),
        HEDDLE_ROW(cudaGraphMemcpyNodeSetParams1D), HEDDLE_ROW(cudaGraphMemsetNodeSetParams),
        HEDDLE_ROW(cudaGraphNodeGetDependencies), HEDDLE_ROW(cudaGraphNodeGetDependentNodes),
        HEDDLE_ROW(cudaGraphRetainUserObject), HEDDLE_ROW(cudaLaunchKernel), HEDDLE_ROW(cudaMalloc),
        HEDDLE_ROW(cudaMemcpyAsync), HEDDLE_ROW(cudaMemsetAsync), HEDDLE_ROW(cudaPointerGetAttributes),
        HEDDLE_ROW(cudaRuntimeGetVersion), HEDDLE_ROW(cudaStreamBeginCapture), HEDDLE_ROW(cudaStreamCreate),
        HEDDLE_ROW(cudaStreamDestroy), HEDDLE_ROW(cudaStreamEndCapture), HEDDLE_ROW(cudaStreamGetCaptureInfo),
        HEDDLE_ROW(cudaStreamIsCapturing), HEDDLE_ROW(cudaStreamSynchronize),
        HEDDLE_ROW(cudaThreadExchangeStreamCaptureMode), HEDDLE_ROW(cudaUserObjectCreate),
        HEDDLE_ROW(cudaUserObjectRelease),
#if CUDART_VERSION >= 12080
        HEDDLE_ROW(cudaKernelSetAttributeForDevice), HEDDLE_ROW(cudaLibraryGetKernel),
        HEDDLE_ROW(cudaLibraryLoadData), HEDDLE_ROW(cudaLibraryUnload),
#endif
#if CUDART_VERSION < 13000  // CUDA 13 has these under the plain names alone
        HEDDLE_ROW(cudaGetDeviceProperties_v2), HEDDLE_ROW(cudaGetDriverEntryPoint),
        HEDDLE_ROW(cudaGraphNodeGetDependencies_v2), HEDDLE_ROW(cudaGraphNodeGetDependentNodes_v2),
        HEDDLE_ROW(cudaStreamGetCaptureInfo_v2),
#endif
  };
#undef HEDDLE_ROW
  const auto at = table.find(name);
  return at == table.end() ? nullptr : at->second;
}

}  // namespace heddle::kernels::cuda
