// How the runner of ops calls a kernel: as it is, unless a program whose kernels read other memory than the host's
// says otherwise.
#pragma once

#include "heddle/kernels/registry.h"

namespace heddle::op_runner {

using RunKernel = void (*)(const kernels::KernelEntry& kernel, const device::KernelCall& call,
                           int64_t scratch_bytes);
inline RunKernel run_kernel = [](const kernels::KernelEntry& kernel, const device::KernelCall& call, int64_t) {
  kernel.run(call);
};

}  // namespace heddle::op_runner
