// In the emulator kernels read the host's memory: nothing is to be done.
#include "tests/gpu/on_device.h"

namespace heddle::op_runner {

Support device_there() { return Support::yes(); }

}  // namespace heddle::op_runner
