// cuDNN without a device: this library stands in front of the installed one and does by itself the four functions
// that need a device (a handle, its stream, an execution). It notes which tensors are given to an execution. All
// others are the installed library's: look-ups by name go on to what a library is linked with.
#include "tests/gpu/cudnn_library.h"

#include <cudnn.h>
#include <dlfcn.h>

#include <map>

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
} handle;

std::map<cudnnBackendDescriptor_t, std::vector<void*>> given;  // the tensors' pointers of each variant pack

}  // namespace

namespace heddle::kernels::cuda {
std::vector<CudnnExecution>& cudnn_executions() {
  static std::vector<CudnnExecution> all;
  return all;
}
void* cudnn_stream() { return handle.stream; }
}  // namespace heddle::kernels::cuda

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* made) {
  *made = reinterpret_cast<cudnnHandle_t>(&handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t stream) {
  handle.stream = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t, cudaStream_t* stream) {
  *stream = handle.stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
    auto* const* first = static_cast<void* const*>(values);
    given[of].assign(first, first + count);
  }
  static const auto installed =
      reinterpret_cast<decltype(&cudnnBackendSetAttribute)>(dlsym(RTLD_NEXT, "cudnnBackendSetAttribute"));
  return installed(of, name, type, count, values);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t pack) {
  heddle::kernels::cuda::cudnn_executions().push_back({handle.stream, given[pack]});
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
