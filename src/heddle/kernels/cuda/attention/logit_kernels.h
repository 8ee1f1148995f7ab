// The largest attention logits of heads, and weights that shrink with them (ops/qk_clip.cpp).
#pragma once

#include "heddle/kernels/cuda/attention/attention_kernels.h"

namespace heddle::kernels::cuda {

constexpr int kLogitThreads = 128;
constexpr int64_t kLogitRows = 64;  // of a block

struct MaxLogitsArgs {
  const void *q, *k;
  const float* lse;
  const int32_t* chosen;  // [T, c] or null
  float* parts;           // [h, blocks_x]
  int64_t T, S, Sq, h, hk, d, c;
  float scale;
  double above;
  SeenArgs seen;
  bool again;  // further keys: the largest of these and of what `parts` has
};
/// Blocks: kLogitRows rows of queries, heads. A warp takes a row, its lanes the keys.
template <class X>
HEDDLE_KERNEL void max_logits(MaxLogitsArgs args);

struct KeepLargestArgs {
  const float* parts;
  double* most;  // [all + 1]
  int64_t blocks, h, first, all;
  double mark;
  bool overwrite;
};
/// most[first + head] becomes the largest of it and the head's parts; the last number is the mark. A thread a
/// number.
HEDDLE_KERNEL void keep_largest(KeepLargestArgs args);

struct HeadFactorsArgs {
  const double *clip, *most;  // [1], [ranks, heads + 1]
  float* factors;             // [heads, 2]: of the first rows of a head, and of the rest
  int64_t* run;               // [2]: the run of this rank; whether anything is scaled
  int64_t ranks, heads;
  double above, first_power, rest_power, mark;
};
/// One block.
HEDDLE_KERNEL void head_factors(HeadFactorsArgs args);

struct ScaleHeadsArgs {
  const float* factors;
  const int64_t* run;
  float* master;  // or null: it is split into low, v and w
  uint16_t* low;
  void* v;
  Bf16* w;
  int64_t count, heads, rows, first, columns;
  bool wide_v;  // v is f32, not bf16
};
HEDDLE_KERNEL void scale_heads(ScaleHeadsArgs args);

}  // namespace heddle::kernels::cuda
