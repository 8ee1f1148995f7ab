#include "heddle/comm/nccl/windows/window_library.h"

#include <dlfcn.h>

#include "heddle/comm/nccl/library.h"

namespace heddle::comm::nccl {

const WindowLibrary& window_library() {
  static const WindowLibrary found = [] {
    WindowLibrary l;
    void* const handle = library_handle();
    const auto find = [&](auto& function, const char* name) {
      if (handle != nullptr)
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
      if (function == nullptr && l.missing.empty())
        l.missing = fmt::format("the NCCL of this machine has no {}", name);
    };
    find(l.allocate, "ncclMemAlloc");
    find(l.free, "ncclMemFree");
    find(l.enter, "ncclCommWindowRegister");
    find(l.leave, "ncclCommWindowDeregister");
    find(l.domain, "ncclTeamLsa");
    return l;
  }();
  return found;
}

}  // namespace heddle::comm::nccl
