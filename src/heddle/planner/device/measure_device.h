// Measures a device that has memory of its own, through the interfaces that the executor uses (device/device.h,
// device/stream.h). It takes spans of its streams, which are its own clock, and training steps of small models.
#pragma once

#include <cstdint>
#include <string_view>

#include "heddle/comm/world.h"
#include "heddle/cost/machine_profile.h"
#include "heddle/planner/measure_machine.h"

namespace heddle::planner {

/// The sizes of the measured parts. The usual ones are those of a GPU.
struct DeviceSizes {
  double most_flops = 5e12;                  // FLOPs of a program's step
  int64_t wide = 4;                          // times the widths, rows and vocabularies of the host's programs
  int64_t copy_bytes = int64_t{256} << 20;   // bytes of a copy whose rate is taken
  int64_t memory_bytes = int64_t{24} << 30;  // bytes of a program, at most
};

/// The profile of the device that `options.backend` opens. ConfigError, in one line, where there is none.
cost::MachineProfile measure_device(const MeasureOptions& options, const DeviceSizes& sizes = {});

/// measure_links between the memories of the ranks' devices; all ranks call it together. ConfigError where there is
/// no way between them.
std::vector<cost::LinkTime> measure_device_links(comm::World& world, cost::Link over, std::string_view backend);

}  // namespace heddle::planner
