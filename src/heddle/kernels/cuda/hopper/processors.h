// Whether the device at hand has Hopper's own instructions, and what of it they are launched by.
#pragma once

namespace heddle::kernels::cuda {

/// Whether the environment says 1.
bool asked_for(const char* variable);
/// Multiprocessors of a device of capability 9.0; 0: another, or none.
int processors_of_hopper();

}  // namespace heddle::kernels::cuda
