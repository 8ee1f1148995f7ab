// Going on from a cache: few rows, so a thread takes an element, and only attention shares work among the threads
// of a block.
#include "heddle/kernels/cuda/cache_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

template <class Q, class K>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) cached_attention(CachedAttentionArgs args) {
  HEDDLE_SHARED(float, most_board, kCacheThreads / kWarp);
  HEDDLE_SHARED(float, sum_board, kCacheThreads / kWarp);
  const int64_t t = blockIdx.x / args.h, j = blockIdx.x % args.h, kv = j / (args.h / args.hk);
  const int64_t place = args.places[t], d = args.d, v = args.v;
  const int64_t first = place < 0 ? 0 : place / args.S * args.S, seen = place < 0 ? 0 : place % args.S + 1;
  const Q* q = static_cast<const Q*>(args.q) + (t * args.h + j) * d;
  const K* keys = static_cast<const K*>(args.keys);
  Q* o = static_cast<Q*>(args.o) + (t * args.h + j) * v;
  float* s = args.scores + static_cast<int64_t>(blockIdx.x) * args.S;
  const int64_t begin = args.chunk > 0    ? (seen - (seen > 0 ? 1 : 0)) / args.chunk * args.chunk
                        : args.window > 0 ? max(seen - args.window, int64_t{0})
                                          : 0;
  float most = args.sinks != nullptr ? args.sinks[j] : -3.4e38f;
  for (int64_t n = begin + threadIdx.x; n < seen; n += kCacheThreads) {
    const K* key = keys + ((first + n) * args.hk + kv) * d;
    float dot = 0;
    for (int64_t i = 0; i < d; ++i) dot += to_float(q[i]) * to_float(key[i]);
    s[n] = args.cap > 0 ? args.cap * tanhf(args.scale * dot / args.cap) : args.scale * dot;
    most = fmaxf(most, s[n]);
  }
  most = block_max(most, most_board);
  float sum = args.sinks != nullptr && threadIdx.x == 0 ? expf(args.sinks[j] - most) : 0.0f;
  for (int64_t n = begin + threadIdx.x; n < seen; n += kCacheThreads) {
    s[n] = expf(s[n] - most);
    sum += s[n];
  }
  sum = block_sum(sum, sum_board);
  __syncthreads();
  const K* values = args.values == nullptr ? keys : static_cast<const K*>(args.values);
  const int64_t width = args.values == nullptr ? d : v;
  for (int64_t i = threadIdx.x; i < v; i += kCacheThreads) {
    float total = 0;
    for (int64_t n = begin; n < seen; ++n)
      total += s[n] * to_float(values[((first + n) * args.hk + kv) * width + i]);
    o[i] = rounded<Q>(seen == 0 ? 0.0f : total / sum);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) rotate_at(RotateArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kCacheThreads + threadIdx.x;
  if (at >= args.R * args.h * args.d) return;
  const X* x = static_cast<const X*>(args.x);
  const int64_t t = at / (args.h * args.d), e = at % args.d - args.first, half = args.r / 2;
  float y = to_float(x[at]);
  if (e >= 0 && e < args.r) {
    const int64_t place = args.places[t];
    const float* row = args.table_Sr + (place < 0 ? 0 : place % args.S) * args.r;
    const bool second = args.interleaved ? e % 2 == 1 : e >= half;
    const int64_t i = args.interleaved ? e / 2 : (second ? e - half : e);
    const int64_t other = at + (second ? -1 : 1) * (args.interleaved ? 1 : half);
    y = second ? to_float(x[other]) * row[half + i] + y * row[i] : y * row[i] - to_float(x[other]) * row[half + i];
  }
  static_cast<X*>(args.y)[at] = rounded<X>(y);
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) mla_absorb_low(LatentArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kCacheThreads + threadIdx.x;
  if (at >= args.R * args.h * args.rank) return;
  const int64_t row = at / args.rank, j = row % args.h, s = at % args.rank;
  const X* x = static_cast<const X*>(args.x) + row * (args.n + args.r);
  const X* up = static_cast<const X*>(args.up) + j * (args.n + args.v) * args.rank + s;
  float low = 0;
  for (int64_t i = 0; i < args.n; ++i) low += to_float(x[i]) * to_float(up[i * args.rank]);
  args.low[at] = args.factor * low;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) mla_expand_low(LatentArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kCacheThreads + threadIdx.x;
  if (at >= args.R * args.h * args.rank) return;
  const float* x = static_cast<const float*>(args.x) + at / args.rank * args.c;
  const X* down = static_cast<const X*>(args.down) + at % args.rank * args.c;
  float low = 0;
  for (int64_t k = 0; k < args.c; ++k) low += to_float(down[k]) * x[k];
  args.low[at] = args.factor * low;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) mla_absorb(LatentArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kCacheThreads + threadIdx.x, width = args.c + args.r;
  if (at >= args.R * args.h * width) return;
  const int64_t row = at / width, j = row % args.h, k = at % width;  // row: of a token and head
  const X* x = static_cast<const X*>(args.x) + row * (args.n + args.r);
  float y = 0;
  if (k >= args.c) {
    y = to_float(x[args.n + k - args.c]);
  } else {
    const X* w = static_cast<const X*>(args.w) + j * (args.n + args.v) * args.c + k;
    for (int64_t i = 0; i < args.n; ++i) y += to_float(x[i]) * to_float(w[i * args.c]);
    const X* down = static_cast<const X*>(args.down) + k;
    for (int64_t s = 0; s < args.rank; ++s) y += args.low[row * args.rank + s] * to_float(down[s * args.c]);
  }
  static_cast<float*>(args.y)[at] = y;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) mla_expand(LatentArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kCacheThreads + threadIdx.x;
  if (at >= args.R * args.h * args.v) return;
  const int64_t row = at / args.v, j = row % args.h, i = at % args.v;
  const float* x = static_cast<const float*>(args.x) + row * args.c;
  const X* w = static_cast<const X*>(args.w) + (j * (args.n + args.v) + args.n + i) * args.c;
  float y = 0;
  for (int64_t k = 0; k < args.c; ++k) y += to_float(w[k]) * x[k];
  const X* up = static_cast<const X*>(args.up) + (j * (args.n + args.v) + args.n + i) * args.rank;
  for (int64_t s = 0; s < args.rank; ++s) y += args.low[row * args.rank + s] * to_float(up[s]);
  static_cast<X*>(args.y)[at] = rounded<X>(y);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) cache_rows(PlacedRowsArgs args) {
  const int64_t t = blockIdx.x, place = args.places[t];
  if (place < 0) return;
  const uint16_t* from = static_cast<const uint16_t*>(args.from) + t * args.width / 2;
  uint16_t* to = static_cast<uint16_t*>(args.to) + (place * args.pitch + args.first) / 2;
  for (int64_t i = threadIdx.x; i < args.width / 2; i += kCacheThreads) to[i] = from[i];
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kCacheThreads) last_rows(PlacedRowsArgs args) {
  const int64_t run = blockIdx.x, length = args.R / args.runs;
  int64_t last = (run + 1) * length - 1;
  while (last >= run * length && args.places[last] < 0) --last;
  const bool found = last >= run * length;
  const uint16_t* from = static_cast<const uint16_t*>(args.from) + (found ? last : 0) * args.width / 2;
  uint16_t* to = static_cast<uint16_t*>(args.to) + run * args.width / 2;
  for (int64_t i = threadIdx.x; i < args.width / 2; i += kCacheThreads) to[i] = found ? from[i] : uint16_t{0};
}

template HEDDLE_KERNEL void cached_attention<float, float>(CachedAttentionArgs args);
template HEDDLE_KERNEL void cached_attention<float, Bf16>(CachedAttentionArgs args);
template HEDDLE_KERNEL void cached_attention<Bf16, Bf16>(CachedAttentionArgs args);
template HEDDLE_KERNEL void rotate_at<float>(RotateArgs args);
template HEDDLE_KERNEL void rotate_at<Bf16>(RotateArgs args);
template HEDDLE_KERNEL void mla_absorb_low<float>(LatentArgs args);
template HEDDLE_KERNEL void mla_absorb_low<Bf16>(LatentArgs args);
template HEDDLE_KERNEL void mla_expand_low<float>(LatentArgs args);
template HEDDLE_KERNEL void mla_expand_low<Bf16>(LatentArgs args);
template HEDDLE_KERNEL void mla_absorb<float>(LatentArgs args);
template HEDDLE_KERNEL void mla_absorb<Bf16>(LatentArgs args);
template HEDDLE_KERNEL void mla_expand<float>(LatentArgs args);
template HEDDLE_KERNEL void mla_expand<Bf16>(LatentArgs args);

}  // namespace heddle::kernels::cuda
