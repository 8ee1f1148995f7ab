#include "heddle/comm/nccl/library.h"

#include <dlfcn.h>

namespace heddle::comm::nccl {

void* library_handle() {
  static void* const found = [] {
    void* handle = nullptr;
    for (const char* name : {"libnccl.so.2", HEDDLE_NCCL_PATH}) {
      if (handle == nullptr && *name != '\0') handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
  }();
  return found;
}

const Library& library() {
  static const Library found = [] {
    Library l;
    void* const handle = library_handle();
    if (handle == nullptr) {
      l.missing = "libnccl.so.2 is not found on this machine";
      return l;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (function == nullptr) l.missing = fmt::format("the NCCL of this machine has no {}", name);
    };
    find(l.get_unique_id, "ncclGetUniqueId");
    find(l.init_rank, "ncclCommInitRank");
    find(l.destroy, "ncclCommDestroy");
    find(l.abort, "ncclCommAbort");
    find(l.async_error, "ncclCommGetAsyncError");
    find(l.error_string, "ncclGetErrorString");
    find(l.group_start, "ncclGroupStart");
    find(l.group_end, "ncclGroupEnd");
    find(l.send, "ncclSend");
    find(l.receive, "ncclRecv");
    return l;
  }();
  return found;
}

void check(ncclResult_t status, const char* doing) {
  if (status == ncclSuccess) return;
  throw SystemError(static_cast<int>(status), fmt::format("NCCL: {}: {}", doing, library().error_string(status)));
}

}  // namespace heddle::comm::nccl
