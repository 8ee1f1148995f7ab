#include "heddle/comm/nccl/library.h"

#include "heddle/device/cuda/library_release.h"
#include "heddle/device/vendor.h"

namespace heddle::comm::nccl {

namespace {
constexpr const device::LibraryNames& kNames = device::library_names(device::LibraryUse::messages);
}

const Library& library() {
  static const Library found = [] {
    Library l;
    device::OpenedLibrary nccl(kNames, NCCL_MAJOR, nullptr, HEDDLE_NCCL_PATH);
    if (nccl.handle() == nullptr) {
      l.missing = fmt::format("{} is not found on this machine", nccl.file());
      return l;
    }
    nccl.find(l.get_unique_id, "GetUniqueId");
    nccl.find(l.init_rank, "CommInitRank");
    nccl.find(l.destroy, "CommDestroy");
    nccl.find(l.abort, "CommAbort");
    nccl.find(l.async_error, "CommGetAsyncError");
    nccl.find(l.error_string, "GetErrorString");
    nccl.find(l.group_start, "GroupStart");
    nccl.find(l.group_end, "GroupEnd");
    nccl.find(l.send, "Send");
    nccl.find(l.receive, "Recv");
    decltype(&ncclGetVersion) get_version = nullptr;
    nccl.find(get_version, "GetVersion");
    if (!nccl.missing().empty()) {
      l.missing = fmt::format("the {} of this machine has no {}", kNames.name, nccl.missing());
      return l;
    }
    const std::string file = SharedLibrary::file_of(get_version);
    if (get_version(&l.version) != ncclSuccess || file.empty()) {
      l.missing = fmt::format("the library {} does not report its release", nccl.file());
      return l;
    }
    l.text = fmt::format("{} {} ({})", kNames.name, device::nccl_release(l.version), file);
    if (const std::string other = device::other_nccl(l.version); !other.empty()) l.missing = l.text + ": " + other;
    return l;
  }();
  return found;
}

void check(ncclResult_t status, const char* doing) {
  if (status == ncclSuccess) return;
  throw SystemError(static_cast<int>(status),
                    fmt::format("{}: {}: {}", kNames.name, doing, library().error_string(status)));
}

}  // namespace heddle::comm::nccl
