// What a build without CUDA says when it is asked for it.
#include "heddle/device/device.h"

namespace heddle::device {

Support cuda_available() { return Support::no("this build has no CUDA: configure it where nvcc is found"); }

std::unique_ptr<Device> cuda_device(const Seat&) {
  config_error("device.backend is \"cuda\": {}", cuda_available().reason);
}

}  // namespace heddle::device
