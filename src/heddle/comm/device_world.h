// Ranks that talk from device to device. The library is NCCL, opened when first needed; a build without its header
// is complete, and says so when asked.
#pragma once

#include <memory>

#include "heddle/base/error.h"
#include "heddle/comm/engine/engine_world.h"
#include "heddle/comm/world.h"
#include "heddle/device/device.h"

namespace heddle::comm {

/// This rank's among the ranks of its host.
inline device::Seat seat_in(const World& world) {
  device::Seat seat{.ranks = world.size()};
  for (int r = 0; r < world.rank(); ++r) seat.on_host += world.node_of(r) == world.node_of(world.rank());
  return seat;
}

/// Support::yes if this build and machine can make a device world, else why not.
Support device_world_available();
/// The library of device worlds with its release and file, or why there is none.
std::string device_world_text();

/// Sends a byte to the device in use and takes it there, by the library of device worlds alone. What it is and
/// where it lies. SystemError where that fails, ConfigError where there is no library.
std::string send_to_itself();

/// A world whose communicators take memory of CUDA devices. `control` carries what the host has to agree on (who
/// makes a group's id) and outlives it; when one of the two fails, both do. A rank calls it with its device chosen.
/// Where ranks of a host outnumber its devices, they share them (for tests: each then counts as a host of its own).
std::unique_ptr<World> device_world(World& control);

/// Support::yes if a device world's messages can go over the GPUs' copy engines, else why not. All ranks call it
/// together, with their devices chosen.
Support peer_copies_available(World& control);
/// The device world, so that they do from `least_bytes` on, the same number on all ranks; all call it together.
/// What goes which way is added to `counts`, which outlives it.
std::unique_ptr<World> with_peer_copies(std::unique_ptr<World> device, World& control, int64_t least_bytes,
                                        EngineCounts& counts);

}  // namespace heddle::comm
