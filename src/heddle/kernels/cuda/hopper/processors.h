// Detects a device that has Hopper's own instructions, and its number of multiprocessors, by which they are
// launched.
#pragma once

namespace heddle::kernels::cuda {

/// True if the environment says 1.
bool asked_for(const char* variable);
/// Multiprocessors of a device of capability 9.0; 0: another, or none.
int processors_of_hopper();

}  // namespace heddle::kernels::cuda
