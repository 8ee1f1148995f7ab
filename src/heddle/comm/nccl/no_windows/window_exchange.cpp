// A build whose NCCL has no device API (nccl_device.h, from 2.28 on).
#include "heddle/comm/nccl/window_exchange.h"

#include <cstdlib>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle::comm::nccl {

bool windows_asked() {
  const char* const asks = std::getenv("HEDDLE_NCCL_WINDOWS");
  if (asks == nullptr || std::string_view(asks) != "1") return false;
  config_error("HEDDLE_NCCL_WINDOWS=1: built without NCCL's device API (nccl_device.h)");
}

std::unique_ptr<WindowExchange> window_exchange(ncclComm_t, int, int, const uint32_t*) { return nullptr; }

}  // namespace heddle::comm::nccl
