// The entries of NCCL that windows need, and what only its device code can tell.
#pragma once

#include <nccl.h>
#include <nccl_device.h>

#include <cstddef>
#include <string>

namespace heddle::comm::nccl {

struct WindowLibrary {
  decltype(&ncclMemAlloc) allocate = nullptr;
  decltype(&ncclMemFree) free = nullptr;
  decltype(&ncclCommWindowRegister) enter = nullptr;
  decltype(&ncclCommWindowDeregister) leave = nullptr;
  ncclTeam_t (*domain)(ncclComm_t) = nullptr;  // the ranks that load from and store to each other's memory
  std::string missing;                         // empty: all are there
};
const WindowLibrary& window_library();

/// Puts on the stream: places[p] becomes where this rank sees the window of rank p of `ranks` of the domain.
/// `places` is memory that the device writes.
void launch_window_places(ncclWindow_t window, int ranks, std::byte** places, void* stream);

}  // namespace heddle::comm::nccl
