// The answers of a build without NCCL when it is asked for it.
#include "heddle/comm/device_world.h"

namespace heddle::comm {

Support device_world_available() {
  return Support::no("this build has no NCCL: configure it where nccl.h is found");
}

std::string device_world_text() { return device_world_available().reason; }

std::string send_to_itself() { config_error("{}", device_world_available().reason); }

std::unique_ptr<World> device_world(World&) {
  config_error("several ranks on device.backend \"cuda\": {}", device_world_available().reason);
}

Support peer_copies_available(World&) { return device_world_available(); }

std::unique_ptr<World> with_peer_copies(std::unique_ptr<World>, World& control, int64_t, EngineCounts&) {
  return device_world(control);
}

}  // namespace heddle::comm
