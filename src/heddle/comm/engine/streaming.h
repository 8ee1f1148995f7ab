// The machine's accelerators that stream data (Intel DSA), which could move bytes without any core. They are
// reported and not used: this project has met none to write for.
#pragma once

#include <string>
#include <vector>

namespace heddle::comm {

struct StreamingAccelerators {
  std::vector<std::string> devices;  // as the system names them: "dsa0"
  std::string text() const;
};

/// As the idxd driver shows them (Documentation/ABI/stable/sysfs-driver-dma-idxd); `folder` for tests.
StreamingAccelerators streaming_accelerators(const std::string& folder = "/sys/bus/dsa/devices");

}  // namespace heddle::comm
