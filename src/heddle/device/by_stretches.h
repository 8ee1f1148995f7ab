// Ops whose rows lie in stretches of a larger tensor, on kernels that find tensors contiguous: the kernel runs on
// one stretch after the other. Only ops that may run on parts of their rows come here (ir::OpDef::by_row).
#pragma once

#include <span>

#include "heddle/device/kernel_call.h"

namespace heddle::device {

/// True if some operand or result lies in more than one stretch.
bool in_stretches(std::span<const TensorView> in, std::span<const TensorView> out);

/// Runs call.of_stretch on each stretch in turn; what lies in one is whole each time.
void run_by_stretches(const KernelCall& call);

}  // namespace heddle::device
