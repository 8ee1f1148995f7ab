// The releases of NVIDIA's libraries that go with this program. Each library is found at run time, and the calls to
// it were compiled from headers of one release. As text: "" where a release does, else what was wanted.
#pragma once

#include <string>

#include "heddle/base/error.h"

namespace heddle::device {

/// The release that is wanted of a library whose interface is that of its major release (cuBLASLt); "" if it is
/// there.
inline std::string other_major(int found, int built) {
  return found == built ? "" : fmt::format("wanted release {}, with which this program was built", built);
}

/// The release that is wanted of a library made for one major release of CUDA (cuDNN), "" if it is there; both as
/// cudaRuntimeGetVersion has it.
inline std::string other_cuda(int of_library, int built) {
  return of_library / 1000 == built / 1000
             ? ""
             : fmt::format("it is for CUDA {}, wanted one for CUDA {}", of_library / 1000, built / 1000);
}

/// "2.28.9" of what ncclGetVersion has.
inline std::string nccl_release(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}
/// The oldest that this program's calls are known to be right for: the first for CUDA 12.
constexpr int kLeastNccl = 21602;
inline std::string other_nccl(int found) {
  return found >= kLeastNccl && found / 10000 == 2
             ? ""
             : fmt::format("wanted {} or a later 2", nccl_release(kLeastNccl));
}

}  // namespace heddle::device
