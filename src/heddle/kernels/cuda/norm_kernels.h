// RMS norms. H is the gain's width, at most kWidestNorm; T rows of that width.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kNormThreads = 256, kNormPacks = 4;
/// A row stays in the registers of its block between its sum and its use.
constexpr int64_t kWidestNorm = int64_t{kNormThreads} * kNormPacks * 8;

struct NormArgs {
  const void *a_TH, *b_TH;  // b: null, or added first
  const float* g_H;
  void *s_TH, *y_TH;  // s: the rounded sum; null without b
  float* rstd_T;
  int64_t T, H;
  float epsilon, offset;  // the gain is offset + g
};
/// A block a row.
template <class X>
HEDDLE_KERNEL void rms_norm(NormArgs args);

struct NormGradArgs {
  const void *dy_TH, *x_TH;
  const float *g_H, *rstd_T;
  const void* dres_TH;  // or null
  void* dx_TH;
  float* dg_parts;  // [ceil(T ÷ kNormGradRows)][H]
  int64_t T, H;
  float offset;
};
/// A block takes kNormGradRows rows and leaves its part of dg.
constexpr int kNormGradRows = 16;
template <class X>
HEDDLE_KERNEL void rms_norm_dgrad(NormGradArgs args);

}  // namespace heddle::kernels::cuda
