// What the communication ops do on host memory, written over a Communicator. See docs/ops.md.
#pragma once

#include <string_view>

#include "heddle/device/kernel_call.h"

namespace heddle::comm {

/// The kernel of a communication op, or null when `kind` is none.
device::Kernel find_collective(std::string_view kind);

/// Rows that this rank receives, from the n of counts_to_host.
int64_t received_rows(const device::TensorView& n);

}  // namespace heddle::comm
