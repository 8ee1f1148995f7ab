// What was put on a stream by cuDNN, where the tests' library (cudnn_library.cpp) stands in front of it.
#pragma once

#include <vector>

namespace heddle::kernels::cuda {

struct CudnnExecution {
  void* stream = nullptr;
  std::vector<void*> pointers;  // of the tensors
};
std::vector<CudnnExecution>& cudnn_executions();
/// The stream that the handle has.
void* cudnn_stream();

}  // namespace heddle::kernels::cuda
