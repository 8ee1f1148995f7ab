// Numbers of f32 as three of bf16 that add up to them, for products on the tensor cores. The three have the 24 bits
// of an f32, so that each product of two pieces is exact and only sums round. Numbers below 2^-110 lose their last
// bits.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kPieces = 3, kMostPieces = 6;

struct SplitArgs {
  const float* from;  // [rows, columns]
  Bf16* to;
  int64_t rows, columns;
  int64_t pitch, step;  // of rows; from the place of one piece to that of the next
  int32_t count;
  int32_t piece[kMostPieces];  // which: 0 is the largest
};
HEDDLE_KERNEL void split_numbers(SplitArgs args);

struct SumPiecesArgs {
  const float* from;  // three addends of each number, `step` apart
  const float* bias;  // of columns, or null
  float* to;          // [rows, columns]
  int64_t rows, columns, pitch, step;
  bool add;
};
HEDDLE_KERNEL void sum_pieces(SumPiecesArgs args);

}  // namespace heddle::kernels::cuda
