#include "heddle/kernels/cuda/cublaslt/library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle::kernels::cuda {

const CublasLt& cublaslt() {
  static const CublasLt found = [] {
    CublasLt l;
    if (const char* off = std::getenv("HEDDLE_CUBLASLT"); off != nullptr && std::string_view(off) == "0") {
      l.unwanted = true;
      l.text = "left out: HEDDLE_CUBLASLT is 0";
      return l;
    }
    // What the user names goes before what the loader finds, and that before where it was when this was built.
    const char* named = std::getenv("HEDDLE_CUBLASLT_PATH");
    void* handle = nullptr;
    for (const char* name :
         {named != nullptr ? named : "", "libcublasLt.so.13", "libcublasLt.so.12", HEDDLE_CUBLASLT_PATH}) {
      if (handle == nullptr && *name != '\0') handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == nullptr) {
      l.text = "neither libcublasLt.so.13 nor .12 is found (HEDDLE_CUBLASLT_PATH names a file)";
      return l;
    }
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      all = all && function != nullptr;
      if (function == nullptr) l.text = fmt::format("the cuBLASLt of this machine has no {}", name);
    };
    find(l.create, "cublasLtCreate");
    find(l.desc_create, "cublasLtMatmulDescCreate");
    find(l.desc_destroy, "cublasLtMatmulDescDestroy");
    find(l.desc_set, "cublasLtMatmulDescSetAttribute");
    find(l.layout_create, "cublasLtMatrixLayoutCreate");
    find(l.layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(l.layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(l.preference_create, "cublasLtMatmulPreferenceCreate");
    find(l.preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(l.preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(l.heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(l.algo_check, "cublasLtMatmulAlgoCheck");
    find(l.matmul, "cublasLtMatmul");
    find(l.version, "cublasLtGetVersion");
    l.there = all;
    if (Dl_info at{}; all && dladdr(reinterpret_cast<void*>(l.matmul), &at) != 0) {
      const size_t version = l.version();
      l.release = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
      l.text = fmt::format("cuBLASLt {} ({})", l.release, at.dli_fname);
    }
    return l;
  }();
  return found;
}

void check_cublaslt(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw SystemError(static_cast<int>(status),
                    fmt::format("cuBLASLt: {}: status {}", doing, static_cast<int>(status)));
}

cublasLtHandle_t handle_of_device() {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) throw SystemError(0, "CUDA: no device is chosen");
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr) check_cublaslt(cublaslt().create(&handle), "making a handle");
  return handle;
}

}  // namespace heddle::kernels::cuda
