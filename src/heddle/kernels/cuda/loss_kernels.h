// Cross entropy from logits. T rows, V columns (the vocabulary, or a rank's part of it).
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

struct LossArgs {
  const void* logits_TV;
  const int32_t* labels_T;  // below 0: masked; V: another rank's part has it
  float* lse_T;             // written, or read by the gradient
  double* loss_T;           // of each row: lse − logits[label], 0 where masked
  int64_t T, V;
};
/// A block a row.
template <class X>
HEDDLE_KERNEL void cross_entropy(LossArgs args);

struct LossGradArgs {
  const void* logits_TV;
  const int32_t* labels_T;
  const float *lse_T, *scales;
  void* dlogits_TV;  // may be the logits, where both have one type
  int64_t T, V;
  int32_t scale_index;
};
/// scale·(softmax − onehot), zeros where masked. L, X: types of logits and result.
template <class L, class X>
HEDDLE_KERNEL void cross_entropy_dgrad(LossGradArgs args);

struct ShardedLossArgs {
  const float* lse_parts;  // [ranks, T]
  const int32_t* labels_T;
  const float* lse_part_T;
  float* lse_T;
  double* loss_T;
  int64_t T, ranks;
};
HEDDLE_KERNEL void sharded_loss(ShardedLossArgs args);

}  // namespace heddle::kernels::cuda
