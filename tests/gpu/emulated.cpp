// In the emulator kernels read the host's memory: the device is the CPU, and nothing is to be done.
#include "heddle/device/device.h"
#include "tests/gpu/on_device.h"

namespace heddle {

// In the place of the library's.
namespace device {
Support cuda_available() { return Support::yes(); }
std::unique_ptr<Device> cuda_device(const Seat&) { return host_device(); }
}  // namespace device

namespace op_runner {
Support device_there() { return Support::yes(); }
}  // namespace op_runner

}  // namespace heddle
