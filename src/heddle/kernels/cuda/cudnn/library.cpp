#include "heddle/kernels/cuda/cudnn/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels::cuda {

namespace {

// Older ones copy the lengths of sequences from the host's memory at each call, where these are no multiple of 128.
constexpr size_t kOldest = 91600, kNextMajor = 100000;

}  // namespace

const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary found = [] {
    CudnnLibrary l;
    if (const char* off = std::getenv("HEDDLE_CUDNN"); off != nullptr && std::string_view(off) == "0") {
      l.text = "left out: HEDDLE_CUDNN is 0";
      return l;
    }
    // What the user names goes before what the loader finds, and that before where it was when this was built.
    const char* named = std::getenv("HEDDLE_CUDNN_PATH");
    for (const char* name : {named != nullptr ? named : "", "libcudnn.so.9", HEDDLE_CUDNN_PATH}) {
      if (l.handle == nullptr && *name != '\0') l.handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (l.handle == nullptr) {
      l.text = "libcudnn.so.9 is not found (HEDDLE_CUDNN_PATH names a file)";
      return l;
    }
    void* const symbol = dlsym(l.handle, "cudnnGetVersion");
    Dl_info at{};
    if (symbol == nullptr || dladdr(symbol, &at) == 0) {
      l.text = "what is found as libcudnn.so.9 has no cudnnGetVersion";
      return l;
    }
    const size_t version = reinterpret_cast<size_t (*)()>(symbol)();
    l.text = fmt::format("cuDNN {}.{}.{} ({})", version / 10000, version / 100 % 100, version % 100, at.dli_fname);
    l.there = version >= kOldest && version < kNextMajor;
    if (!l.there) l.text += ", wanted 9.16 or a later 9";
    return l;
  }();
  return found;
}

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {
VendorLibrary cuda_attention_library() { return {cuda::cudnn_library().there, cuda::cudnn_library().text}; }
}  // namespace heddle::kernels
