// The question whether the own attention has room in a block of a vendor's devices, asked before anything runs.
#pragma once

#include "heddle/base/dtype.h"
#include "heddle/device/vendor.h"
#include "heddle/kernels/registry.h"

namespace heddle::kernels::cuda {

/// Heads of d numbers and values of v, forward and backward.
Support attention_fits_block(int64_t d, int64_t v, Dtype dtype, device::Vendor vendor);

}  // namespace heddle::kernels::cuda
