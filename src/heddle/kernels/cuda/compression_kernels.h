// Entries of many tokens, lists of keys, and rows of groups (ops/compression.cpp). A sequence has S positions and
// E = S ÷ m entries; an entry of d elements stands for m tokens, in one or two series of d columns.
#pragma once

#include "heddle/kernels/cuda/selection_kernels.h"

namespace heddle::kernels::cuda {

constexpr int kCompressionThreads = 128;

struct CompressArgs {
  const void *c, *z;               // [B·S, series·d]
  const float* bias;               // [m, series·d]
  const int32_t *starts, *places;  // or null
  const void* de;                  // of the gradient
  void *out, *dz;                  // e; dc and dz
  int64_t rows, S, m, series, d;
};
/// Blocks: entries, columns. A thread makes an element of an entry.
template <class X>
HEDDLE_KERNEL void compress_rows(CompressArgs args);
/// Blocks: E + 1 a sequence, columns. A thread writes its column of an entry's tokens; those of block E write zeros
/// where no entry reads.
template <class X>
HEDDLE_KERNEL void compress_rows_dgrad(CompressArgs args);

struct CompressBiasArgs {
  const void* dz;  // [T, columns]
  float* acc;      // [m, columns]
  int64_t T, S, m, columns;
  bool overwrite;
};
/// Blocks: m, columns. Sums are in increasing position.
template <class X>
HEDDLE_KERNEL void compress_bias_wgrad(CompressBiasArgs args);

struct ListKeysArgs {
  QueryRowsArgs rows;
  const int32_t* chosen;  // [T, chosen_columns] or null
  int32_t* keys;          // [T, columns]
  int64_t chosen_columns, columns, window;
};
/// A block a row.
HEDDLE_KERNEL void list_keys(ListKeysArgs args);

struct JoinRowsArgs {
  void *k, *e, *joined;  // [B·S, words], [B·E, words], [B·(S + E), words]
  int64_t S, E, words;
  bool join;  // else split
};
/// Blocks: rows of joined. A word is 16 bits.
HEDDLE_KERNEL void join_rows(JoinRowsArgs args);

struct RegroupArgs {
  const void* from;
  void* to;
  int64_t T, G, K;  // [T, G, K] and [G, T, K]
  bool apart;       // from the first to the second, else back
};
/// A thread an element of X.
template <class X>
HEDDLE_KERNEL void regroup_rows(RegroupArgs args);

}  // namespace heddle::kernels::cuda
