// The devices that were opened instead of CUDA's, in the emulator.
#pragma once

#include <vector>

#include "heddle/device/device.h"

namespace heddle::test {

/// A seat for each time that a device was opened. To be read while nobody opens any.
std::vector<device::Seat>& opened_seats();

/// True if devices that are opened from now on have memory of their own (device_memory.h).
bool& memory_apart();

}  // namespace heddle::test
