// Where the tests of the cuda backend run: on a device, or in the emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "heddle/base/error.h"
#include "heddle/kernels/registry.h"

namespace heddle::op_runner {

/// Whether kernels can run here, or why not. Sets up how the runner of ops calls them.
Support device_there();

/// Room for a tensor of more bytes than a test would ever fill: addresses that kernels read and write. What was not
/// put there is anything.
class Room {
 public:
  virtual ~Room() = default;
  virtual std::byte* at() const = 0;
  virtual void put(int64_t offset, const void* from, int64_t bytes) = 0;
  virtual void get(void* to, int64_t offset, int64_t bytes) const = 0;
};
std::unique_ptr<Room> room(int64_t bytes);
/// Whether rooms of so many bytes in all can be had, or why not.
Support room_for(int64_t bytes);

/// An entry on operands that lie in rooms. In the emulator only the first and last blocks of its grids run.
void run_in_rooms(const kernels::KernelEntry& kernel, const device::KernelCall& call);

}  // namespace heddle::op_runner
