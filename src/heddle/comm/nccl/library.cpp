#include "heddle/comm/nccl/library.h"

#include "heddle/base/shared_library.h"
#include "heddle/device/cuda/library_release.h"

namespace heddle::comm::nccl {

const Library& library() {
  static const Library found = [] {
    Library l;
    SharedLibrary nccl({"libnccl.so.2", HEDDLE_NCCL_PATH});
    if (nccl.handle() == nullptr) {
      l.missing = "libnccl.so.2 is not found on this machine";
      return l;
    }
    nccl.find(l.get_unique_id, "ncclGetUniqueId");
    nccl.find(l.init_rank, "ncclCommInitRank");
    nccl.find(l.destroy, "ncclCommDestroy");
    nccl.find(l.abort, "ncclCommAbort");
    nccl.find(l.async_error, "ncclCommGetAsyncError");
    nccl.find(l.error_string, "ncclGetErrorString");
    nccl.find(l.group_start, "ncclGroupStart");
    nccl.find(l.group_end, "ncclGroupEnd");
    nccl.find(l.send, "ncclSend");
    nccl.find(l.receive, "ncclRecv");
    decltype(&ncclGetVersion) get_version = nullptr;
    nccl.find(get_version, "ncclGetVersion");
    if (nccl.missing() != nullptr) {
      l.missing = fmt::format("the NCCL of this machine has no {}", nccl.missing());
      return l;
    }
    const std::string file = SharedLibrary::file_of(get_version);
    if (get_version(&l.version) != ncclSuccess || file.empty()) {
      l.missing = "the library libnccl.so.2 does not report its release";
      return l;
    }
    l.text = fmt::format("NCCL {} ({})", device::nccl_release(l.version), file);
    if (const std::string other = device::other_nccl(l.version); !other.empty()) l.missing = l.text + ": " + other;
    return l;
  }();
  return found;
}

void check(ncclResult_t status, const char* doing) {
  if (status == ncclSuccess) return;
  throw SystemError(static_cast<int>(status), fmt::format("NCCL: {}: {}", doing, library().error_string(status)));
}

}  // namespace heddle::comm::nccl
