// LayerNorms of T rows of H columns, however wide: what a row is read again for lies in the nearest cache.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kLayerNormThreads = 256;

struct LayerNormArgs {
  const void *a_TH, *b_TH;  // b: null, or added first
  const float *g_H, *bias_H;
  void *s_TH, *y_TH;  // s: the rounded sum; null without b
  float *mean_T, *rstd_T;
  int64_t T, H;
  float epsilon;
};
/// A block a row.
template <class X>
HEDDLE_KERNEL void layer_norm(LayerNormArgs args);

struct LayerNormGradArgs {
  const void *dy_TH, *x_TH;
  const float *g_H, *mean_T, *rstd_T;
  const void* dres_TH;  // or null
  void* dx_TH;
  float *dg_parts, *db_parts;  // [ceil(T ÷ kLayerNormGradRows)][H]
  int64_t T, H;
};
/// dx; a block a row.
template <class X>
HEDDLE_KERNEL void layer_norm_dgrad(LayerNormGradArgs args);
/// The parts of dg and db: a thread takes eight columns of so many rows.
constexpr int kLayerNormGradRows = 16;
template <class X>
HEDDLE_KERNEL void layer_norm_sums(LayerNormGradArgs args);

}  // namespace heddle::kernels::cuda
