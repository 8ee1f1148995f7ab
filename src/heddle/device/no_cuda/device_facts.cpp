// Facts of devices in a build without CUDA.
#include "heddle/device/device_facts.h"

#include "heddle/device/device.h"

namespace heddle::device {

std::vector<DeviceFact> cuda_facts(const Seat&) {
  return {{false, "build", cuda_available().reason, "install CUDA 12.5 or later, then configure again"}};
}

std::string cuda_device_in_use() { return cuda_available().reason; }
int cuda_device_count() { return 0; }
double copy_between(void*, int, const void*, int, int64_t) {
  internal_error("copies between devices without CUDA");
}

}  // namespace heddle::device
