// Streams of the residual (ops/hyper_connection.cpp): T rows of n streams of H columns, and a token's W weights.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kStreamThreads = 256;
/// Rows of a block that sums gradients of base and scales.
constexpr int kStreamGradRows = 8;

struct StreamArgs {
  const void* x;     // [T, n·H]
  const void* y;     // [T, H]: dy of a read; what a write adds
  const void* ds;    // [T, n·H]: of a write
  const void* dres;  // [T, n·H], or null
  const float *q, *base, *scale, *w, *dw, *rstd_T;
  void *to, *to_H;  // [T, n·H] and [T, H]
  float *to_w, *to_rstd_T, *dbase_parts, *dscale_parts;
  int64_t T, H, W;
  int n, iterations;
  bool writes;
  float epsilon, norm_epsilon, magnitude;
};

/// A block some rows each, of all kernels here.
template <class X>
HEDDLE_KERNEL void read_streams(StreamArgs args);
template <class X>
HEDDLE_KERNEL void read_streams_dgrad(StreamArgs args);
template <class X>
HEDDLE_KERNEL void write_streams(StreamArgs args);
template <class X>
HEDDLE_KERNEL void write_streams_dgrad(StreamArgs args);

}  // namespace heddle::kernels::cuda
