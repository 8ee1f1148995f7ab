// Dropout of T rows of H columns.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

struct DropoutArgs {
  const void *x_TH, *residual_TH;  // residual: or null
  const float* bias_H;             // or null
  const int32_t *tokens_T, *key;   // the inputs drawn_tokens, drawn_key
  void* y_TH;
  int64_t T, H;
  uint32_t site, least_kept;
  float factor;
};
/// A thread takes eight columns of a row.
constexpr int kDropoutThreads = 256;
template <class X>
HEDDLE_KERNEL void dropout(DropoutArgs args);

}  // namespace heddle::kernels::cuda
