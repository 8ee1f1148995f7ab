#include "heddle/kernels/cuda/cublaslt/library.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "heddle/base/error.h"
#include "heddle/device/cuda/library_release.h"
#include "heddle/device/vendor.h"

namespace heddle::kernels::cuda {

namespace {
constexpr const device::LibraryNames& kNames = device::library_names(device::LibraryUse::products);
static_assert(kNames.why_not == nullptr, "built for a vendor whose library it does not call");
}  // namespace

CublasLt open_cublaslt() {
  CublasLt l;
  if (const char* off = std::getenv("HEDDLE_CUBLASLT"); off != nullptr && std::string_view(off) == "0") {
    l.unwanted = true;
    l.text = "left out: HEDDLE_CUBLASLT is 0";
    return l;
  }
  // Search order: what the user names, what the loader finds, and where it was when this was built.
  device::OpenedLibrary library(kNames, CUBLAS_VER_MAJOR, std::getenv("HEDDLE_CUBLASLT_PATH"),
                                HEDDLE_CUBLASLT_PATH);
  if (library.handle() == nullptr) {
    l.text = fmt::format("{} is not found (HEDDLE_CUBLASLT_PATH names a file)", library.file());
    return l;
  }
  library.find(l.create, "Create");
  library.find(l.desc_create, "MatmulDescCreate");
  library.find(l.desc_destroy, "MatmulDescDestroy");
  library.find(l.desc_set, "MatmulDescSetAttribute");
  library.find(l.layout_create, "MatrixLayoutCreate");
  library.find(l.layout_destroy, "MatrixLayoutDestroy");
  library.find(l.layout_set, "MatrixLayoutSetAttribute");
  library.find(l.preference_create, "MatmulPreferenceCreate");
  library.find(l.preference_destroy, "MatmulPreferenceDestroy");
  library.find(l.preference_set, "MatmulPreferenceSetAttribute");
  library.find(l.heuristic, "MatmulAlgoGetHeuristic");
  library.find(l.algo_check, "MatmulAlgoCheck");
  library.find(l.matmul, "Matmul");
  library.find(l.version, "GetVersion");
  l.there = library.missing().empty();
  if (!l.there) l.text = fmt::format("the {} of this machine has no {}", kNames.name, library.missing());
  const std::string file = l.there ? SharedLibrary::file_of(l.matmul) : "";
  if (!file.empty()) {
    const size_t version = l.version();
    l.release = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
    l.text = fmt::format("{} {} ({})", kNames.name, l.release, file);
    // Other vendors' libraries have releases of their own under CUDA's headers.
    const int major =
        device::kVendor == device::Vendor::nvidia ? static_cast<int>(version / 10000) : CUBLAS_VER_MAJOR;
    const std::string other = device::other_major(major, CUBLAS_VER_MAJOR);
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
                    fmt::format("{}: {}: status {}", kNames.name, doing, static_cast<int>(status)));
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
