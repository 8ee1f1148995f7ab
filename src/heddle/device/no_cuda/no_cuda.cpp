// The device of a build without CUDA: why there is none.
#include "heddle/device/device.h"

namespace heddle::device {

void tell_cuda_driver(bool) {}

Support cuda_available() { return Support::no("this build has no CUDA: configure it where nvcc is found"); }

std::unique_ptr<Device> cuda_device(const Seat&) {
  config_error("device.backend is \"cuda\": {}", cuda_available().reason);
}

}  // namespace heddle::device
