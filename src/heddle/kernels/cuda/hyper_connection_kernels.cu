// read_streams, write_streams and their gradients (ops/hyper_connection.cpp). A block
// takes a row at a time. Its threads go over the columns of a stream, eight at a time, with all streams side by
// side; one thread makes the weights in shared memory.
#include "heddle/kernels/cuda/hyper_connection_kernels.h"
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/stream_weights.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int kStreamWarps = kStreamThreads / kWarp;

HEDDLE_DEVICE bool mixes(const StreamArgs& args) { return args.W == args.n * (2 + args.n); }

HEDDLE_DEVICE StreamWeights<float> weights_of(const StreamArgs& args) {
  StreamWeights<float> weights;
  weights.n = args.n;
  weights.iterations = args.iterations;
  weights.writes = args.writes;
  weights.mixes = mixes(args);
  weights.epsilon = args.epsilon;
  weights.magnitude = args.magnitude;
  return weights;
}

/// Calls body(h, left) for this thread's packs of a row of H columns.
template <class Body>
HEDDLE_DEVICE void each_pack(int64_t H, const Body& body) {
  for (int64_t h = static_cast<int64_t>(threadIdx.x) * kPack; h < H; h += static_cast<int64_t>(blockDim.x) * kPack)
    body(h, H - h);
}

/// The sums over the block of the first `count` of `own`, in `sums`, which is shared. `board`: shared, kMost a
/// warp.
template <int kMost>
HEDDLE_DEVICE void block_sums(const float (&own)[kMost], int count, float* board, float* sums) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  HEDDLE_UNROLL
  for (int i = 0; i < kMost; ++i) {
    if (i >= count) break;
    const float sum = warp_sum(own[i]);
    if (lane == 0) board[warp * kMost + i] = sum;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
    float sum = 0;
    for (int w = 0; w < kStreamWarps; ++w) sum += board[w * kMost + i];
    sums[i] = sum;
  }
  __syncthreads();
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kStreamThreads) read_streams(StreamArgs args) {
  HEDDLE_SHARED(float, of_warps, kStreamWarps);
  HEDDLE_SHARED(float, w, kMostStreamWeights);
  HEDDLE_SHARED(float, room, kStreamRoom);
  const StreamWeights<float> weights = weights_of(args);
  const int64_t H = args.H, t = static_cast<int64_t>(blockIdx.x);
  const int n = args.n, W = weights.count();
  const X* x = static_cast<const X*>(args.x) + t * n * H;
  X* y = static_cast<X*>(args.to_H) + t * H;
  const bool wide = wide_rows<X>(args.x, H) && wide_rows<X>(args.to_H, H);
  float squares = 0;
  for (int i = 0; i < n; ++i) {
    each_pack(H, [&](int64_t h, int64_t left) {
      float v[kPack];
      load_pack(x + i * H + h, left, wide, v);
      HEDDLE_UNROLL
      for (int e = 0; e < kPack; ++e) squares += v[e] * v[e];
    });
  }
  squares = block_sum(squares, of_warps);
  if (threadIdx.x == 0) {
    const float rstd = 1.0f / sqrtf(squares / static_cast<float>(n * H) + args.norm_epsilon);
    args.to_rstd_T[t] = rstd;
    weights.make(args.q + t * W, rstd, args.base, args.scale, w, room);
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < W; i += kStreamThreads) args.to_w[t * W + i] = w[i];
  each_pack(H, [&](int64_t h, int64_t left) {
    float sum[kPack] = {};
    for (int i = 0; i < n; ++i) {
      float v[kPack];
      load_pack(x + i * H + h, left, wide, v);
      HEDDLE_UNROLL
      for (int e = 0; e < kPack; ++e) sum[e] += w[i] * v[e];
    }
    store_pack(y + h, left, wide, sum);
  });
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kStreamThreads) read_streams_dgrad(StreamArgs args) {
  HEDDLE_SHARED(float, board, kStreamWarps* kMostStreams);
  HEDDLE_SHARED(float, dpre, kMostStreams);
  HEDDLE_SHARED(float, w, kMostStreams);
  HEDDLE_SHARED(float, dw, kMostStreamWeights);
  HEDDLE_SHARED(float, dbase, kMostStreamWeights);
  HEDDLE_SHARED(float, dscale, 3);
  HEDDLE_SHARED(float, room, kStreamRoom);
  HEDDLE_SHARED(float, along, 1);
  const StreamWeights<float> weights = weights_of(args);
  const int64_t H = args.H;
  const int n = args.n, W = weights.count(), scales = weights.mixes ? 3 : weights.writes ? 2 : 1;
  const bool wide =
      wide_rows<X>(args.x, H) && wide_rows<X>(args.y, H) && wide_rows<X>(args.dres, H) && wide_rows<X>(args.to, H);
  for (int i = static_cast<int>(threadIdx.x); i < W; i += kStreamThreads) dbase[i] = 0;
  if (threadIdx.x < 3) dscale[threadIdx.x] = 0;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kStreamGradRows;
  const int64_t last = first + kStreamGradRows < args.T ? first + kStreamGradRows : args.T;
  for (int64_t t = first; t < last; ++t) {
    const X *x = static_cast<const X*>(args.x) + t * n * H, *dy = static_cast<const X*>(args.y) + t * H;
    const X* dres = args.dres == nullptr ? nullptr : static_cast<const X*>(args.dres) + t * n * H;
    X* dx = static_cast<X*>(args.to) + t * n * H;
    float dots[kMostStreams] = {};
    each_pack(H, [&](int64_t h, int64_t left) {
      float d[kPack];
      load_pack(dy + h, left, wide, d);
      HEDDLE_UNROLL
      for (int i = 0; i < kMostStreams; ++i) {
        if (i >= n) break;
        float v[kPack];
        load_pack(x + i * H + h, left, wide, v);
        HEDDLE_UNROLL
        for (int e = 0; e < kPack; ++e) dots[i] += d[e] * v[e];
      }
    });
    for (int i = static_cast<int>(threadIdx.x); i < W; i += kStreamThreads)
      dw[i] = args.dw == nullptr ? 0.0f : args.dw[t * W + i];
    block_sums(dots, n, board, dpre);
    if (threadIdx.x == 0) {
      const float rstd = args.rstd_T[t];
      const float drstd = weights.gradient(args.q + t * W, rstd, args.base, args.scale, dpre, dw, args.to_w + t * W,
                                           dbase, dscale, room);
      weights.make_pre(args.q + t * W, rstd, args.base, args.scale, w);
      along[0] = drstd * rstd * rstd * rstd / static_cast<float>(n * H);
    }
    __syncthreads();
    each_pack(H, [&](int64_t h, int64_t left) {
      float d[kPack];
      load_pack(dy + h, left, wide, d);
      for (int i = 0; i < n; ++i) {
        float v[kPack];
        load_pack(x + i * H + h, left, wide, v);
        HEDDLE_UNROLL
        for (int e = 0; e < kPack; ++e) v[e] = w[i] * d[e] - v[e] * along[0];
        if (dres != nullptr) {
          float r[kPack];
          load_pack(dres + i * H + h, left, wide, r);
          HEDDLE_UNROLL
          for (int e = 0; e < kPack; ++e) v[e] = r[e] + v[e];
        }
        store_pack(dx + i * H + h, left, wide, v);
      }
    });
    __syncthreads();
  }
  const int64_t part = static_cast<int64_t>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < W; i += kStreamThreads) args.dbase_parts[part * W + i] = dbase[i];
  if (static_cast<int>(threadIdx.x) < scales) args.dscale_parts[part * scales + threadIdx.x] = dscale[threadIdx.x];
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kStreamThreads) write_streams(StreamArgs args) {
  HEDDLE_SHARED(float, w, kMostStreamWeights);
  const int64_t H = args.H, t = static_cast<int64_t>(blockIdx.x);
  const int n = args.n, W = static_cast<int>(args.W);
  const bool mixed = mixes(args);
  for (int i = static_cast<int>(threadIdx.x); i < W; i += kStreamThreads) w[i] = args.w[t * W + i];
  __syncthreads();
  const float *post = w + first_of_writing(W, n), *comb = post + n;
  const X *x = static_cast<const X*>(args.x) + t * n * H, *a = static_cast<const X*>(args.y) + t * H;
  X* s = static_cast<X*>(args.to) + t * n * H;
  const bool wide = wide_rows<X>(args.x, H) && wide_rows<X>(args.y, H) && wide_rows<X>(args.to, H);
  each_pack(H, [&](int64_t h, int64_t left) {
    float v[kMostStreams][kPack], made[kPack];
    load_pack(a + h, left, wide, made);
    HEDDLE_UNROLL
    for (int j = 0; j < kMostStreams; ++j) {
      if (j >= n) break;
      load_pack(x + j * H + h, left, wide, v[j]);
    }
    for (int k = 0; k < n; ++k) {
      float sum[kPack];
      HEDDLE_UNROLL
      for (int e = 0; e < kPack; ++e) sum[e] = post[k] * made[e];
      HEDDLE_UNROLL
      for (int j = 0; j < kMostStreams; ++j) {
        if (j >= n) break;
        if (!mixed && j != k) continue;
        const float part = mixed ? comb[j * n + k] : 1.0f;
        HEDDLE_UNROLL
        for (int e = 0; e < kPack; ++e) sum[e] += part * v[j][e];
      }
      store_pack(s + k * H + h, left, wide, sum);
    }
  });
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kStreamThreads) write_streams_dgrad(StreamArgs args) {
  constexpr int kDots = kMostStreams * (kMostStreams + 1);
  HEDDLE_SHARED(float, w, kMostStreamWeights);
  HEDDLE_SHARED(float, board, kStreamWarps* kMostStreams);
  HEDDLE_SHARED(float, sums, kDots);
  const int64_t H = args.H, t = static_cast<int64_t>(blockIdx.x);
  const int n = args.n, W = static_cast<int>(args.W), first = first_of_writing(W, n);
  const bool mixed = mixes(args);
  for (int i = static_cast<int>(threadIdx.x); i < W; i += kStreamThreads) w[i] = args.w[t * W + i];
  __syncthreads();
  const float *post = w + first, *comb = post + n;
  const X *ds = static_cast<const X*>(args.ds) + t * n * H, *x = static_cast<const X*>(args.x) + t * n * H,
          *a = static_cast<const X*>(args.y) + t * H;
  X *dx = static_cast<X*>(args.to) + t * n * H, *da = static_cast<X*>(args.to_H) + t * H;
  const bool wide = wide_rows<X>(args.x, H) && wide_rows<X>(args.y, H) && wide_rows<X>(args.ds, H) &&
                    wide_rows<X>(args.to, H) && wide_rows<X>(args.to_H, H);
  // Row 0 is what the block has made, the others are the streams. Each meets all of ds.
  // Without a mix, the gradient of each stream is its ds.
  for (int row = 0; row <= (mixed ? n : 0); ++row) {
    const X* from = row == 0 ? a : x + (row - 1) * H;
    X* to = row == 0 ? da : dx + (row - 1) * H;
    const float* factors = row == 0 ? post : comb + (row - 1) * n;
    float dots[kMostStreams] = {};
    each_pack(H, [&](int64_t h, int64_t left) {
      float v[kPack], sum[kPack] = {};
      load_pack(from + h, left, wide, v);
      HEDDLE_UNROLL
      for (int k = 0; k < kMostStreams; ++k) {
        if (k >= n) break;
        float d[kPack];
        load_pack(ds + k * H + h, left, wide, d);
        HEDDLE_UNROLL
        for (int e = 0; e < kPack; ++e) {
          sum[e] += factors[k] * d[e];
          dots[k] += v[e] * d[e];
        }
      }
      store_pack(to + h, left, wide, sum);
    });
    block_sums(dots, n, board, sums + row * n);
  }
  float* dw = args.to_w + t * W;
  for (int i = static_cast<int>(threadIdx.x); i < W; i += kStreamThreads)
    dw[i] = i < first ? 0.0f : sums[i - first];
  if (mixed) return;
  for (int k = 0; k < n; ++k) {
    each_pack(H, [&](int64_t h, int64_t left) {
      float d[kPack];
      load_pack(ds + k * H + h, left, wide, d);
      store_pack(dx + k * H + h, left, wide, d);
    });
  }
}

template HEDDLE_KERNEL void read_streams<float>(StreamArgs args);
template HEDDLE_KERNEL void read_streams<Bf16>(StreamArgs args);
template HEDDLE_KERNEL void read_streams_dgrad<float>(StreamArgs args);
template HEDDLE_KERNEL void read_streams_dgrad<Bf16>(StreamArgs args);
template HEDDLE_KERNEL void write_streams<float>(StreamArgs args);
template HEDDLE_KERNEL void write_streams<Bf16>(StreamArgs args);
template HEDDLE_KERNEL void write_streams_dgrad<float>(StreamArgs args);
template HEDDLE_KERNEL void write_streams_dgrad<Bf16>(StreamArgs args);

}  // namespace heddle::kernels::cuda
