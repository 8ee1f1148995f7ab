// attention and its gradient. B sequences, S keys and Sq queries of each, h query heads, hk key heads, d head dim,
// v value dim. Which keys a query sees: kernels/seen_keys.h, in numbers.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int64_t kWidestHead = 512, kWidestValue = 512;
constexpr int kAttentionThreads = 128;
constexpr int kQueryTile = 64, kKeyTile = 64;

/// Columns of a head that one warp adds up for its 16 rows. Wider heads have several slices of 128 columns, each
/// with warps of its own, which share the rows' scores.
constexpr int kSliceColumns = 128;
constexpr int head_slices(int64_t d, int64_t v) {
  return d <= 192 && v <= kSliceColumns ? 1 : d <= 2 * kSliceColumns && v <= 2 * kSliceColumns ? 2 : 4;
}
/// Rows of a block of the gradient, and rows of the other side that it takes at a time.
constexpr int grad_rows(int slices) { return slices == 4 ? 32 : 64; }
constexpr int grad_inner_rows(int slices) { return slices == 1 ? 32 : 16 * slices; }
constexpr int attention_threads(int slices) { return kAttentionThreads * slices; }
constexpr int grad_threads(int slices) { return grad_rows(slices) / 16 * 32 * slices; }

struct SeenArgs {
  int64_t length;
  int32_t cp, index, owner;  // owner −1: all keys
  bool causal;
  int64_t window;         // 0: none
  const int32_t* starts;  // [B, length] or null
};

struct AttentionSizes {
  int64_t B, S, Sq, h, hk, d, v_dim;
  float scale, cap;  // cap 0: scores stay
  SeenArgs seen;
};

struct AttentionArgs : AttentionSizes {
  const void *q, *k, *v;
  void* o;
  float* lse;
  const float *o_before, *lse_before;  // or null
  const float* sinks;                  // [h] or null
  bool wide_o;                         // o is f32
};
/// Blocks: query tiles, heads, sequences. kSlices: head_slices.
template <class X, int kSlices>
HEDDLE_KERNEL void attention(AttentionArgs args);

struct AttentionGradArgs : AttentionSizes {
  const void *d_o, *q, *k, *v, *o;
  const float *lse, *dq_before;  // dq_before: or null
  float* delta;                  // scratch [B·Sq, h]: do·o
  void *dq, *dk, *dv;
  bool wide_dq;
};
/// delta: a warp a (row, head). dkv: blocks are key tiles, key heads, sequences. dq: query tiles, heads, sequences.
template <class X>
HEDDLE_KERNEL void attention_delta(AttentionGradArgs args);
template <class X, int kSlices>
HEDDLE_KERNEL void attention_dkv(AttentionGradArgs args);
template <class X, int kSlices>
HEDDLE_KERNEL void attention_dq(AttentionGradArgs args);

struct SinksGradArgs {
  const void *d_o, *o;
  const float *lse, *sinks;
  float* acc;  // [h·parts], of which this rank's begin at `first`
  int64_t T, h, v, first, all;
  bool overwrite;
};
/// A block a sink of `all`: that of a head here adds −Σ exp(sink − lse)·(do·o), one of another rank nothing.
template <class X>
HEDDLE_KERNEL void attention_sinks_wgrad(SinksGradArgs args);

/// Numbers in a padded row of shared memory: products go by 16 on the inside and by 32 on the outside.
constexpr int padded_row(int64_t width, int size) { return static_cast<int>((width + 31) / 32 * 32) + 16 / size; }
constexpr int64_t attention_shared_bytes(int64_t d, int64_t v, int size) {
  return static_cast<int64_t>(size) * ((kQueryTile + kKeyTile) * padded_row(d, size) +
                                       kKeyTile * padded_row(v, size) + kQueryTile * padded_row(kKeyTile, size));
}
constexpr int64_t attention_grad_shared_bytes(int64_t d, int64_t v, int size) {
  const int slices = head_slices(d, v), rows = grad_rows(slices), inner = grad_inner_rows(slices);
  return static_cast<int64_t>(size) *
         ((rows + inner) * (padded_row(d, size) + padded_row(v, size)) + rows * padded_row(inner, size));
}

}  // namespace heddle::kernels::cuda
