// Memory that kernels, copies and what stands for a library reach in the emulator, and the host does not: an access
// by the host ends the test by a signal, as it does on a device.
#pragma once

#include <cstddef>

namespace heddle::test {

/// Pages that the host can't touch from now on; until they are given back.
void keep_from_host(void* at, size_t bytes);
void give_to_host(void* at);

/// Opens all such pages while one lives. Other threads reach them meanwhile, too.
class OnDevice {
 public:
  OnDevice();
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};

}  // namespace heddle::test
