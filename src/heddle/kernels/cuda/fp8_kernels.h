// Operands of products rounded to eight bits in blocks that share a scale, as ops/fp8_blocks.h defines. T rows, K
// columns; what is rounded comes out as bytes with the bytes of their scales, or as the bf16 numbers that it stands
// for, exactly.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kFp8Block = 128, kFp8Threads = 256;

struct Fp8RowsArgs {
  const void* x_TK;
  uint8_t *q_TK, *scales;  // or null
  Bf16* to_TK;             // in their place
  int64_t T, K, blocks;    // ⌈K ÷ 128⌉ blocks a row
};
/// 128 columns of a row together; a warp a block. X: the type of x.
template <class X>
HEDDLE_KERNEL void fp8_rows(Fp8RowsArgs args);

struct Fp8NumbersArgs {
  const uint8_t *q_TK, *scales;
  Bf16* to_TK;
  int64_t T, K, blocks;
};
/// The numbers that bytes stand for.
HEDDLE_KERNEL void fp8_numbers(Fp8NumbersArgs args);

struct Fp8WeightNumbersArgs {
  const uint8_t *q, *scales;  // as fp8_weight makes them
  Bf16* to_ENK;
  int64_t E, N, K;
  bool turned;
};
/// The numbers that bytes of a weight stand for.
HEDDLE_KERNEL void fp8_weight_numbers(Fp8WeightNumbersArgs args);

struct Fp8WeightArgs {
  const void* w_ENK;
  Bf16* to_ENK;         // or null: bytes are made, and their scales
  uint8_t *q, *scales;  // [E, N, K] and [E, blocks of N, blocks of K]; turned: [E, K, N] and [E, blocks of K, of N]
  int64_t N, K;
  bool turned;
};
/// 128 × 128 of each matrix together. Blocks: those of K, of N, of E.
template <class X>
HEDDLE_KERNEL void fp8_weight(Fp8WeightArgs args);

struct Fp8ColumnsArgs {
  const void* x_TK;        // X, or with `bytes` bytes that
  const uint8_t* scales;   // stand for numbers by these
  const int32_t* offsets;  // [groups + 1], on the device; null: one group of all rows
  Bf16* to_TK;
  int64_t T, K, blocks, groups;
};
/// 128 rows of a column together, from the first row of each group on. Blocks: as many as rows can have, then those
/// of K. Threads: kFp8Block.
template <class X, bool bytes>
HEDDLE_KERNEL void fp8_columns(Fp8ColumnsArgs args);

}  // namespace heddle::kernels::cuda
