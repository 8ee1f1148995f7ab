// The numbers of a tensor that the host may read, whatever its type.
#pragma once

#include "heddle/device/kernel_call.h"

namespace heddle::train {

/// Element `i` of a tensor of f32 or f64.
double number(const device::TensorView& view, int64_t i);
/// True if no element is infinite or no number, and for tensors of integers.
bool is_finite(const device::TensorView& view);

}  // namespace heddle::train
