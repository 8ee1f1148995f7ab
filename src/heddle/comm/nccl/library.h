// The entries of NCCL that communicators need, found when first needed.
#pragma once

#include <nccl.h>

#include "heddle/base/error.h"

namespace heddle::comm::nccl {

struct Library {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  int version = 0;      // as NCCL_VERSION_CODE
  std::string text;     // its release and file
  std::string missing;  // empty: all are there
};
const Library& library();

/// SystemError that says what was being done.
void check(ncclResult_t status, const char* doing);

}  // namespace heddle::comm::nccl
