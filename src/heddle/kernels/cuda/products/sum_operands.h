// Operands of a library's grouped kernel for the weight gradients of experts. The device makes them from the
// offsets, so that the host need not know how many rows each has. R rows of bf16 sorted by expert; K in, N out.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// Arrays of a number for each expert: acc_e [N, K] (+)= dy_eᵀ x_e over rows_e rows.
struct SumArrays {
  int32_t* sizes;  // [groups, 3]: N, K, rows; of an expert without rows three zeros: nothing is to be done
  const void **dy, **x;
  float** acc;
  int64_t *dy_pitch, *x_pitch, *acc_pitch;  // N, K, K
};

struct SumOperandsArgs {
  const int32_t* offsets;  // [groups + 1]
  const void *dy, *x;      // bf16 [R, N], [R, K]
  float* acc;              // [groups, N, K]
  int64_t groups, N, K;
  SumArrays to;
};
/// A thread an expert.
HEDDLE_KERNEL void sum_operands(SumOperandsArgs args);

struct ClearIdleArgs {
  const int32_t* offsets;
  float* acc;  // [groups, each]
  int64_t each;
};
/// acc_e = 0 for each expert without rows. Blocks: any number × groups.
HEDDLE_KERNEL void clear_idle(ClearIdleArgs args);

}  // namespace heddle::kernels::cuda
