// The answers of a build without CUDA when it is asked for it.
#include "heddle/device/device.h"
#include "heddle/device/device_facts.h"

namespace heddle::device {

void tell_cuda_driver(bool) {}

Support cuda_available() { return Support::no("this build has no CUDA: configure it where nvcc is found"); }

std::vector<DeviceFact> cuda_facts(const Seat&) {
  return {{false, "build", cuda_available().reason, "install CUDA 12.5 or later, then configure again"}};
}

std::string cuda_device_in_use() { return cuda_available().reason; }
int cuda_device_count() { return 0; }
double copy_between(void*, int, const void*, int, int64_t) {
  internal_error("copies between devices without CUDA");
}

std::unique_ptr<Device> cuda_device(const Seat&) {
  config_error("device.backend is \"cuda\": {}", cuda_available().reason);
}

}  // namespace heddle::device
