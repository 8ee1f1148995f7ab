// Cross entropy from logits; losses of pairs of sequences. T rows, V columns (the vocabulary, or a rank's part of
// it).
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

/// Bytes of a block's logits, in f32, and of the gradients that are kept at once, in bf16; of at least so many
/// rows. Tests make them small.
struct HeadRoom {
  int64_t logit_bytes = int64_t{256} << 20, gradient_bytes = int64_t{512} << 20, least_rows = 128;
};
HeadRoom& head_room();

struct LossArgs {
  const void* logits_TV;
  const int32_t* labels_T;  // below 0: masked; V: another rank's part has it
  float* lse_T;             // written, or read by the gradient
  double* loss_T;           // of each row: weight·(lse − logits[label]), 0 where masked
  int64_t T, V;
  const double* weights_T;  // or null: 1
  double* z_T;              // of each row: weight·lse², 0 where masked; or null
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
  const double* weights_T;  // or null: 1, as the scale is where `scales` is null
  float z_weight;
};
/// scale·weight·((1 + 2·z_weight·lse)·softmax − onehot), zeros where masked. L, X: types of logits and result.
template <class L, class X>
HEDDLE_KERNEL void cross_entropy_dgrad(LossGradArgs args);

struct ShardedLossArgs {
  const float* lse_parts;  // [ranks, T]
  const int32_t* labels_T;
  const float* lse_part_T;
  float* lse_T;
  double* loss_T;
  int64_t T, ranks;
  const double* weights_T;
  double* z_T;
  const double* losses_part_T;  // to be added to the loss of each row; or null
};
HEDDLE_KERNEL void sharded_loss(ShardedLossArgs args);

struct SequenceSumArgs {
  const double* losses_T;
  double* sums_B;
  int64_t B, S;
};
/// A block a sequence.
HEDDLE_KERNEL void sequence_sums(SequenceSumArgs args);

struct SequenceSpreadArgs {
  const double* dsums_B;
  double* dlosses_T;
  int64_t T, S;
};
HEDDLE_KERNEL void sequence_spread(SequenceSpreadArgs args);

struct PreferenceArgs {
  const double *sums_B, *references_B;
  const float* scales;
  double* dsums_B;                                       // of the gradient
  double *loss, *chosen, *rejected, *margin, *accuracy;  // of the loss
  int64_t pairs;
  double beta, smoothing, ranks;
  int32_t scale_index;
};
/// One thread.
HEDDLE_KERNEL void preference_loss(PreferenceArgs args);
HEDDLE_KERNEL void preference_gradient(PreferenceArgs args);

}  // namespace heddle::kernels::cuda
