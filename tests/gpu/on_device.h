// Where the tests of the cuda backend run: on a device, or in the emulator.
#pragma once

#include "heddle/base/error.h"

namespace heddle::op_runner {

/// Whether kernels can run here, or why not. Sets up how the runner of ops calls them.
Support device_there();

}  // namespace heddle::op_runner
