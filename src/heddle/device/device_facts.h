// The facts that devices and their driver report of themselves, to find out why a device does not work.
#pragma once

#include <string>
#include <vector>

#include "heddle/device/device.h"

namespace heddle::device {

struct DeviceFact {
  bool good = true;
  std::string what, found;
  std::string remedy;  // where it is not good
};

/// The facts of this machine's CUDA devices: driver, names, memory, who may use them, which reach each other's
/// memory. No device but that of the seat is opened. Where the driver answers with an error the fact says so;
/// nothing is thrown.
std::vector<DeviceFact> cuda_facts(const Seat& seat);

/// The name and number of the CUDA device that this thread has chosen, or the driver's error.
std::string cuda_device_in_use();
/// The number of CUDA devices that this process sees; 0 where there is no driver.
int cuda_device_count();
/// Bytes a second from a device's memory to another's, of one copy after one that is not timed. Both are arenas' of
/// devices that are open, numbered as cuda_device takes them. SystemError where the driver refuses.
double copy_between(void* to, int to_device, const void* from, int from_device, int64_t bytes);

}  // namespace heddle::device
