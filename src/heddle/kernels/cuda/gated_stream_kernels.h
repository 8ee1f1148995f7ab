// Gated streams of the residual (ops/gated_streams.cpp): T rows of n streams of H columns.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kGatedThreads = 256;
/// Rows of a block that sums the gradient of a gain.
constexpr int kGatedGradRows = 8;
constexpr int kMostGatedStreams = 8;

/// The operands of all kernels here; a kernel takes what is said beside it. They are X unless stated.
struct GatedArgs {
  const void *x, *y, *u;    // [T, n·H]
  const void* dres;         // [T, n·H], or null
  const void* row;          // [T, H]
  const float *g, *w, *dw;  // [n·H]; [T, n]
  void *to, *to_second;     // [T, n·H]
  void* to_row;             // [T, H]
  float *to_w, *dg_parts;   // [T, n], or null; [ceil(T ÷ kGatedGradRows)][n·H]
  int64_t T, H;
  int n;
  float epsilon, offset;
};

/// x, g -> to, to_w (rstd). A block a row, of all but the gradient of the norm.
template <class X>
HEDDLE_KERNEL void norm_gated(GatedArgs args);
/// y (dy), x, g, w (rstd), dres -> to, dg_parts. A block kGatedGradRows rows.
template <class X>
HEDDLE_KERNEL void norm_gated_dgrad(GatedArgs args);
/// y, u, w (q, or null) -> to_row, to_w.
template <class X>
HEDDLE_KERNEL void read_gated(GatedArgs args);
/// row (dr), y, u, w and dw or null -> to (dy), to_second (du), to_w (dq).
template <class X>
HEDDLE_KERNEL void read_gated_dgrad(GatedArgs args);
/// x (k), y, row (v) -> to.
template <class X>
HEDDLE_KERNEL void gate_rows(GatedArgs args);
/// u (ds), x (k), y, row (v) -> to (dk), to_second (dy), to_row (dv).
template <class X>
HEDDLE_KERNEL void gate_rows_dgrad(GatedArgs args);

}  // namespace heddle::kernels::cuda
