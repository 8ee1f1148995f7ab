// Going on from a cache (ops/cache.cpp). R rows, S positions a sequence; row t stands at places[t] = sequence·S +
// position, or nowhere where that is negative.
#pragma once

#include "heddle/kernels/cuda/arguments.h"

namespace heddle::kernels::cuda {

constexpr int kCacheThreads = 128;

struct CachedAttentionArgs {
  const void *q, *keys, *values;  // [R,h·d]; of the cache: [.., hk·d], [.., hk·v] or null: of a key its first v
  const int32_t* places;
  void* o;                                   // [R,h·v], of q's type
  float* scores;                             // [R·h,S]
  const float* sinks;                        // [h] or null
  int64_t R, h, hk, d, v, S, window, chunk;  // window, chunk 0: none
  float scale, cap;                          // cap 0: none
};
/// A block a row and head.
template <class Q, class K>
HEDDLE_KERNEL void cached_attention(CachedAttentionArgs args);

struct RotateArgs {
  const void* x;  // [R,h·d]
  const float* table_Sr;
  const int32_t* places;
  void* y;
  int64_t R, h, d, first, r, S;  // of d elements those from `first` on are rotated
  bool interleaved;
};
/// A thread an element.
template <class X>
HEDDLE_KERNEL void rotate_at(RotateArgs args);

struct LatentArgs {
  const void *x, *w;  // [R,h·(n+r)] or f32 [R,h·c]; [h·(n+v),c]
  void* y;            // f32 [R,h·(c+r)] or [R,h·v]
  int64_t R, h, n, r, v, c;
  const void *down, *up;  // beside w, factor · up down: [rank,c], [h·(n+v),rank]; null where rank is 0
  float* low;             // [R,h,rank]: factor · upᵀ x, or factor · down x
  int64_t rank;
  float factor;
};
/// The product through an adapter, before either of the two below; a thread an element of `low`.
template <class X>
HEDDLE_KERNEL void mla_absorb_low(LatentArgs args);
template <class X>
HEDDLE_KERNEL void mla_expand_low(LatentArgs args);
/// y = (Kᵀ x_n, x_r), and y = V x, of each head; a thread an element.
template <class X>
HEDDLE_KERNEL void mla_absorb(LatentArgs args);
template <class X>
HEDDLE_KERNEL void mla_expand(LatentArgs args);

struct PlacedRowsArgs {
  const void* from;  // rows of `width` bytes
  const int32_t* places;
  void* to;
  int64_t R, width, pitch, first;  // of a row of the cache, and where in it; bytes
  int64_t runs;
};
/// Row t of `from` to row places[t] of `to`; and of each run of R ÷ runs rows the last that stands somewhere, or
/// zeros. A block a row of `from`, or a run; two bytes at a time.
HEDDLE_KERNEL void cache_rows(PlacedRowsArgs args);
HEDDLE_KERNEL void last_rows(PlacedRowsArgs args);

}  // namespace heddle::kernels::cuda
