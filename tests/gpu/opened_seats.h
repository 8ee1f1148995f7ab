// The devices that were opened instead of CUDA's, in the emulator.
#pragma once

#include <vector>

#include "heddle/device/device.h"

namespace heddle::test {

/// A seat for each time that a device was opened. To be read while nobody opens any.
std::vector<device::Seat>& opened_seats();

}  // namespace heddle::test
