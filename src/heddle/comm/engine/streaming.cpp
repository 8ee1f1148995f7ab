#include "heddle/comm/engine/streaming.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace heddle::comm {

StreamingAccelerators streaming_accelerators(const std::string& folder) {
  StreamingAccelerators found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();  // beside "dsa0" there are its queues and engines: "wq0.1"
    const bool numbered = name.size() > 3 && std::all_of(name.begin() + 3, name.end(),
                                                         [](unsigned char c) { return std::isdigit(c) != 0; });
    if (name.starts_with("dsa") && numbered) found.devices.push_back(name);
  }
  std::sort(found.devices.begin(), found.devices.end());
  return found;
}

std::string StreamingAccelerators::text() const {
  if (devices.empty()) return "no accelerator here (Intel DSA)";
  return fmt::format("{} is there and not used: a core makes the copies", fmt::join(devices, ", "));
}

}  // namespace heddle::comm
