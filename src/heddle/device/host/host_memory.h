// The memory of this machine, and how much of it is left.
#pragma once

#include <cstdint>

namespace heddle::device {

/// Bytes of physical memory that this process may hope for: the smaller of the machine's and its control group's.
int64_t host_memory_bytes();

/// Bytes of those that could be taken now without pushing anything out: free, or held as copies of files.
int64_t host_memory_left_bytes();

}  // namespace heddle::device
