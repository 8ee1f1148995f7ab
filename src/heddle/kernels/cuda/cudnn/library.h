// The library, found when first needed.
#pragma once

#include <string>

namespace heddle::kernels::cuda {

struct CudnnLibrary {
  void* handle = nullptr;
  bool there = false;
  std::string text;  // its version and file, or why it is not used
};
const CudnnLibrary& cudnn_library();

}  // namespace heddle::kernels::cuda
