// CUTLASS's grouped kernel for Hopper, tensor copies and wgmma over tiles of 64×256×64 in turn, of the weight
// gradients of experts. Compute capability 9.0 only. In plain C++: its source is compiled apart from all else.
#pragma once

#include <cstdint>

#include "heddle/kernels/cuda/products/sum_operands.h"

namespace heddle::kernels::cuda {

/// Rows and columns that the kernel's 16-byte accesses allow: N and K are multiples of this, operands aligned to
/// it.
constexpr int64_t kGroupedSumsColumns = 8, kGroupedSumsAlignment = 16;

/// acc_e = dy_eᵀ x_e, or is added to. Returns null, or what could not be done; nothing has run then.
/// `device` has `processors` multiprocessors; `workspace_bytes` is what there is of it.
const char* grouped_sums_by_cutlass(const SumArrays& arrays, int64_t groups, bool add, int device, int processors,
                                    void* workspace, int64_t workspace_bytes, void* stream);

}  // namespace heddle::kernels::cuda
