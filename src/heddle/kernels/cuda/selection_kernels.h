// Selection of keys, attention to those that are chosen, and the loss of the indexer (ops/selection.cpp). T rows of
// queries, c columns of `chosen` (without it, S), h heads of d elements, hk key heads, v value elements.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kSelectionThreads = 128;
/// Blocks that score keys at a time, each in its own S numbers of scratch.
constexpr int64_t kScoringBlocks = 1024;
/// Elements of a row of keys that a thread sums gradients of.
constexpr int kColumnsPerThread = 8;

/// kernels/query_rows.h, in numbers.
struct QueryRowsArgs {
  int64_t S, own, keys, rate;
  int32_t cp, tp, cp_index, tp_index;
  const int32_t *starts, *places;  // or null
};

struct IndexArgs {
  const void *q, *k;  // [T,h·d], [.., d]
  const float* w;     // [T,h]
  QueryRowsArgs rows;
  int64_t T, h, d;
  float scale;
};
struct ChooseArgs {
  IndexArgs index;
  float* scores;    // [kScoringBlocks, S]
  int32_t* chosen;  // [T,c]
  int64_t c;
};
/// A block takes one row after the other.
template <class X>
HEDDLE_KERNEL void choose_keys(ChooseArgs args);

struct ChooseBlocksArgs {
  const void *q, *k;  // [T,h·d], [.., d]
  QueryRowsArgs rows;
  float* scores;    // [kScoringBlocks, blocks]
  int32_t* chosen;  // [T·h,c]
  int64_t T, h, d, c, block, blocks, local;
};
/// A block takes one row and head after the other.
template <class X>
HEDDLE_KERNEL void choose_blocks(ChooseBlocksArgs args);

/// Lists of keys, or of blocks of keys; block 0: of keys (kernels/query_rows.h).
struct ListsArgs {
  int64_t lists = 1, block = 0, tail = 0;
};

struct ChosenAttentionArgs {
  const void *q, *k, *values;  // values null: of a key its first v
  const int32_t* chosen;
  const float* sinks;  // [h], or null
  void* o;             // of q's type
  float* lse;          // [T,h]
  QueryRowsArgs rows;
  int64_t h, hk, d, v, c;
  float scale;
  ListsArgs lists;
};
/// A block a row and head, with a number of shared memory for each key that a query may have.
template <class Q, class K>
HEDDLE_KERNEL void chosen_attention(ChosenAttentionArgs args);

struct ChosenAttentionGradArgs {
  const void *d_o, *q, *k, *values, *o;
  const float* lse;
  const int32_t* chosen;
  float* delta;  // scratch [T,h]: do·o
  void *dq, *dk, *dv;
  QueryRowsArgs rows;
  int64_t h, hk, d, v, c;
  float scale;
  ListsArgs lists;
};
/// dq: a block a row and head, with as much shared memory; it leaves delta. dkv, after it: a block a key and kv
/// head.
template <class X>
HEDDLE_KERNEL void chosen_attention_dq(ChosenAttentionGradArgs args);
template <class X>
HEDDLE_KERNEL void chosen_attention_dkv(ChosenAttentionGradArgs args);

struct AttentionShareArgs {
  const void *q, *k;
  const float* lse;       // [T,h]
  const int32_t* chosen;  // or null
  float* share;           // [T,lists·columns]
  QueryRowsArgs rows;
  int64_t h, hk, d, c;
  float scale;
  ListsArgs lists;
  int64_t columns;  // of a list
  int64_t width;    // slots of a list that a column sums: one, or a block
};
/// A block a row. A thread makes a column.
template <class X>
HEDDLE_KERNEL void attention_share(AttentionShareArgs args);

struct IndexLossArgs {
  IndexArgs index;
  const float* share;     // [T,lists·slots]
  const int32_t* chosen;  // or null
  const float* factor;    // of the loss in the batch; null: the loss alone
  double* loss;           // [T·lists], or null
  float* d_score;         // scratch [T,lists·slots]
  void *dq, *dk;
  float* dw;      // or null
  int64_t c;      // columns of `chosen`
  int64_t slots;  // of a list
  float weight;
  ListsArgs lists;
  bool apart;  // each head has a list, and scores of its own
};
/// Blocks of a row and list, with a number of shared memory for each slot: weight · KL of each. Then the gradients
/// of scores, dq and dw; and, after them, dk of a key.
template <class X>
HEDDLE_KERNEL void index_loss(IndexLossArgs args);
template <class X>
HEDDLE_KERNEL void index_loss_dq(IndexLossArgs args);
template <class X>
HEDDLE_KERNEL void index_loss_dk(IndexLossArgs args);

}  // namespace heddle::kernels::cuda
