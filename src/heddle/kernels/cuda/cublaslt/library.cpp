#include "heddle/kernels/cuda/cublaslt/library.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/base/shared_library.h"
#include "heddle/device/cuda/library_release.h"

namespace heddle::kernels::cuda {

CublasLt open_cublaslt() {
  CublasLt l;
  if (const char* off = std::getenv("HEDDLE_CUBLASLT"); off != nullptr && std::string_view(off) == "0") {
    l.unwanted = true;
    l.text = "left out: HEDDLE_CUBLASLT is 0";
    return l;
  }
  // Search order: what the user names, what the loader finds, and where it was when this was built.
  const char* named = std::getenv("HEDDLE_CUBLASLT_PATH");
  const std::string usual = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  SharedLibrary library({named != nullptr ? named : "", usual.c_str(), HEDDLE_CUBLASLT_PATH});
  if (library.handle() == nullptr) {
    l.text = fmt::format("{} is not found (HEDDLE_CUBLASLT_PATH names a file)", usual);
    return l;
  }
  library.find(l.create, "cublasLtCreate");
  library.find(l.desc_create, "cublasLtMatmulDescCreate");
  library.find(l.desc_destroy, "cublasLtMatmulDescDestroy");
  library.find(l.desc_set, "cublasLtMatmulDescSetAttribute");
  library.find(l.layout_create, "cublasLtMatrixLayoutCreate");
  library.find(l.layout_destroy, "cublasLtMatrixLayoutDestroy");
  library.find(l.layout_set, "cublasLtMatrixLayoutSetAttribute");
  library.find(l.preference_create, "cublasLtMatmulPreferenceCreate");
  library.find(l.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  library.find(l.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  library.find(l.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.find(l.algo_check, "cublasLtMatmulAlgoCheck");
  library.find(l.matmul, "cublasLtMatmul");
  library.find(l.version, "cublasLtGetVersion");
  l.there = library.missing() == nullptr;
  if (!l.there) l.text = fmt::format("the cuBLASLt of this machine has no {}", library.missing());
  const std::string file = l.there ? SharedLibrary::file_of(l.matmul) : "";
  if (!file.empty()) {
    const size_t version = l.version();
    l.release = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    l.text = fmt::format("cuBLASLt {} ({})", l.release, file);
    const std::string other = device::other_major(static_cast<int>(version / 10000), CUBLAS_VER_MAJOR);
    l.there = other.empty();
    if (!l.there) l.text += ": " + other;
  }
  return l;
}

const CublasLt& cublaslt() {
  static const CublasLt found = open_cublaslt();
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
