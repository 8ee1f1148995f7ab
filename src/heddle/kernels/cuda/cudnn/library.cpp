#include "heddle/kernels/cuda/cudnn/library.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <string_view>

#include "heddle/device/cuda/library_release.h"
#include "heddle/device/vendor.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels::cuda {

namespace {

// Older ones copy the lengths of sequences from the host's memory at each call, where these are no multiple of 128.
constexpr size_t kOldest = 91600, kNextMajor = 100000;

constexpr const device::LibraryNames& kNames = device::library_names(device::LibraryUse::attention);
static_assert(kNames.why_not == nullptr, "built for a vendor whose library it does not call");

}  // namespace

const CudnnLibrary& cudnn_library() {
  static const CudnnLibrary found = [] {
    CudnnLibrary l;
    if (const char* off = std::getenv("HEDDLE_CUDNN"); off != nullptr && std::string_view(off) == "0") {
      l.text = "left out: HEDDLE_CUDNN is 0";
      return l;
    }
    // Search order: what the user names, what the loader finds, and where it was when this was built.
    device::OpenedLibrary library(kNames, 0, std::getenv("HEDDLE_CUDNN_PATH"), HEDDLE_CUDNN_PATH);
    l.handle = library.handle();
    if (l.handle == nullptr) {
      l.text = fmt::format("{} is not found (HEDDLE_CUDNN_PATH names a file)", library.file());
      return l;
    }
    size_t (*version_of)() = nullptr;
    library.find(version_of, "GetVersion");
    const std::string file = version_of == nullptr ? "" : SharedLibrary::file_of(version_of);
    if (file.empty()) {
      l.text = fmt::format("what is found as {} has no {}GetVersion", library.file(), kNames.prefix);
      return l;
    }
    const size_t version = version_of();
    l.text =
        fmt::format("{} {}.{}.{} ({})", kNames.name, version / 10000, version / 100 % 100, version % 100, file);
    l.there = version >= kOldest && version < kNextMajor;
    if (!l.there) l.text += ", wanted 9.16 or a later 9";
    size_t (*cuda_version_of)() = nullptr;
    library.find(cuda_version_of, "GetCudartVersion");
    if (!l.there || cuda_version_of == nullptr) return l;
    const std::string other = device::other_cuda(static_cast<int>(cuda_version_of()), CUDART_VERSION);
    l.there = other.empty();
    if (!l.there) l.text += ": " + other;
    return l;
  }();
  return found;
}

}  // namespace heddle::kernels::cuda

namespace heddle::kernels {
VendorLibrary cuda_attention_library() { return {cuda::cudnn_library().there, cuda::cudnn_library().text}; }
}  // namespace heddle::kernels
