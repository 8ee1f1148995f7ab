// The driver of a machine without a device, as far as cuDNN asks for it when it makes plans for a device that is only
// described: it takes compiled kernels, and there is no device to run them on.
typedef int Result;
enum { kSuccess = 0, kNoDevice = 100 };

#define TAKEN(name) \
  Result name(void) { return kSuccess; }
#define GIVES_A_HANDLE(name) \
  Result name(void** handle) { \
    static int one; \
    *handle = &one; \
    return kSuccess; \
  }
#define NO_DEVICE(name) \
  Result name(void) { return kNoDevice; }

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

GIVES_A_HANDLE(cuLibraryLoadData) GIVES_A_HANDLE(cuLibraryGetKernel) GIVES_A_HANDLE(cuModuleLoadData)
GIVES_A_HANDLE(cuModuleLoadDataEx) GIVES_A_HANDLE(cuModuleGetFunction)
TAKEN(cuFuncGetAttribute) TAKEN(cuFuncSetAttribute) TAKEN(cuKernelGetAttribute) TAKEN(cuKernelSetAttribute)
TAKEN(cuLibraryLoadFromFile) TAKEN(cuLibraryUnload) TAKEN(cuModuleGetGlobal_v2) TAKEN(cuModuleLoadFatBinary)
TAKEN(cuModuleUnload)
NO_DEVICE(cuCtxGetCurrent) NO_DEVICE(cuCtxGetDevice) NO_DEVICE(cuCtxGetLimit) NO_DEVICE(cuCtxPopCurrent)
NO_DEVICE(cuCtxPushCurrent) NO_DEVICE(cuDeviceGet) NO_DEVICE(cuDeviceGetAttribute) NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuDevicePrimaryCtxRelease) NO_DEVICE(cuDevicePrimaryCtxReset) NO_DEVICE(cuDevicePrimaryCtxRetain)
NO_DEVICE(cuGetErrorName) NO_DEVICE(cuGetErrorString) NO_DEVICE(cuInit) NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuLaunchKernel) NO_DEVICE(cuLaunchKernelEx) NO_DEVICE(cuLinkAddData) NO_DEVICE(cuLinkAddData_v2)
NO_DEVICE(cuLinkAddFile_v2) NO_DEVICE(cuLinkComplete) NO_DEVICE(cuLinkCreate) NO_DEVICE(cuLinkCreate_v2)
NO_DEVICE(cuLinkDestroy) NO_DEVICE(cuMemcpyDtoH_v2) NO_DEVICE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
NO_DEVICE(cuOccupancyMaxPotentialClusterSize) NO_DEVICE(cuStreamGetCtx) NO_DEVICE(cuStreamSynchronize)
NO_DEVICE(cuTensorMapEncodeTiled)
