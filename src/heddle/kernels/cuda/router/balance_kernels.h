// Margins of choices in bins, and biases moved to their quantiles (ops/balance.cpp). T tokens, E experts, k chosen.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kMarginThreads = 256;  // at least as many as there are bins, and tokens read at a time

struct MarginArgs {
  const float *s_TE, *bias_E;
  float* middle_T;  // scratch: half-way between the last score that is chosen and the next
  double* margins;
  int64_t T, E;
  int32_t k;
  bool overwrite;
};
/// A warp a token, with the shared memory of the router's kernels.
HEDDLE_KERNEL void middles_of_tokens(MarginArgs args);
/// A block an expert.
HEDDLE_KERNEL void count_margins(MarginArgs args);

struct QuantileArgs {
  const double *margins, *hyper;
  double* quantile_E;  // scratch
  float* bias_E;
  int64_t E;
  int32_t k;
};
/// One block.
HEDDLE_KERNEL void quantile_bias_update(QuantileArgs args);

}  // namespace heddle::kernels::cuda
