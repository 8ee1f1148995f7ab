// attention in one sweep over the keys with a running maximum, and its gradient in two. One sweep is for dk and dv
// and adds up over queries; the other is for dq and adds up over keys. Nothing is added atomically; scores are made
// anew in each (seven products where one sweep with atomic additions takes five). FlashAttention-2, arXiv
// 2307.08691.
//
// A block has four warps of 16 rows each: queries (forward, dq), or keys (dkv). Scores p go through shared memory
// between their two products, rounded to the type of the operands.
#include "heddle/kernels/cuda/attention/attention_kernels.h"
#include "heddle/kernels/cuda/attention/seen_rows.h"
#include "heddle/kernels/cuda/products/tile.h"

namespace heddle::kernels::cuda {

namespace {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.69314718055994531f;
constexpr int kValueParts = kWidestValue / 32, kHeadParts = kWidestHead / 32;

HEDDLE_DEVICE float lowest() { return -3.402823466e38f; }

/// A score of a product of a query and a key, in units of log₂ e; `slope` is what a cap leaves of its gradient.
HEDDLE_DEVICE float score_of(float product, float scale, float cap, float& slope) {
  slope = 1;
  if (!(cap > 0)) return product * (scale * kLog2E);
  const float bent = tanhf(product * scale / cap);
  slope = 1 - bent * bent;
  return cap * kLog2E * bent;
}

template <int N>
HEDDLE_DEVICE void clear(float (&c)[N][1][4][4]) {
  HEDDLE_UNROLL
  for (int n = 0; n < N; ++n) {
    HEDDLE_UNROLL
    for (int i = 0; i < 4; ++i) c[n][0][i][0] = c[n][0][i][1] = c[n][0][i][2] = c[n][0][i][3] = 0;
  }
}

/// c += a·b for 16 rows of a and all columns of b, which lies by k, 32 columns at a time.
template <class X, int N>
HEDDLE_DEVICE void multiply_wide(float (&c)[N][1][4][4], const X* a, int a_pitch, const X* b, int b_pitch, int K,
                                 int64_t columns) {
  HEDDLE_UNROLL
  for (int n = 0; n < N; ++n) {
    if (n * 32 < columns) multiply_tile<false, true>(c[n], a, a_pitch, b + n * 32, b_pitch, K);
  }
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kAttentionThreads) attention(AttentionArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const int64_t d = args.d, dv = args.v_dim, S = args.S, Sq = args.Sq;
  const int pitch = padded_row(d, sizeof(X)), pitch_v = padded_row(dv, sizeof(X));
  const int pitch_p = padded_row(kKeyTile, sizeof(X));
  const int wide_d = pitch - kRowPad<X>, wide_v = pitch_v - kRowPad<X>;
  X* q_tile = reinterpret_cast<X*>(shared);
  X* k_tile = q_tile + kQueryTile * pitch;
  X* v_tile = k_tile + kKeyTile * pitch;
  X* p_tile = v_tile + kKeyTile * pitch_v;

  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kQueryTile;  // the longest first
  const int64_t head = blockIdx.y, kv = head / (args.h / args.hk), sequence = blockIdx.z;
  const X* q = static_cast<const X*>(args.q) + ((sequence * Sq + first) * args.h + head) * d;
  const X* k = static_cast<const X*>(args.k) + (sequence * S * args.hk + kv) * d;
  const X* v = static_cast<const X*>(args.v) + (sequence * S * args.hk + kv) * dv;
  const bool wide = wide_rows<X>(args.q, d) && wide_rows<X>(args.k, d), wide_value = wide_rows<X>(args.v, dv);
  const int64_t most_seen = min(S, seen_of(min(Sq, first + kQueryTile) - 1, args.seen));

  const auto fetch_k = [&](int64_t key) {
    if (key < most_seen) {
      copy_tile(k_tile, pitch, kKeyTile, wide_d, k + key * args.hk * d, args.hk * d, S - key, d, wide);
    }
    end_copies();
  };
  const auto fetch_v = [&](int64_t key) {
    if (key < most_seen) {
      copy_tile(v_tile, pitch_v, kKeyTile, wide_v, v + key * args.hk * dv, args.hk * dv, S - key, dv, wide_value);
    }
    end_copies();
  };
  copy_tile(q_tile, pitch, kQueryTile, wide_d, q, args.h * d, Sq - first, d, wide);
  const int64_t begin = first_of(sequence, first, args.seen) / kKeyTile * kKeyTile;
  fetch_k(begin);
  fetch_v(begin);

  const int warp = static_cast<int>(threadIdx.x) / kTileLanes, lane = static_cast<int>(threadIdx.x) % kTileLanes;
  X* own_p = p_tile + warp * 16 * pitch_p;
  int64_t row[2], seen[2], from[2];
  float most[2], sum[2];
  HEDDLE_UNROLL
  for (int i = 0; i < 2; ++i) {
    row[i] = first + warp * 16 + lane / 4 + i * 8;
    seen[i] = row[i] < Sq ? min(S, seen_of(row[i], args.seen)) : 0;
    from[i] = row[i] < Sq ? first_of(sequence, row[i], args.seen) : 0;
    most[i] = args.sinks != nullptr ? args.sinks[head] * kLog2E : lowest();
    sum[i] = args.sinks != nullptr ? 1 : 0;
  }
  float o[kValueParts][1][4][4];
  clear(o);
  for (int64_t key = begin; key < most_seen; key += kKeyTile) {
    wait_for_copies<1>();
    __syncthreads();
    float s[2][1][4][4];
    clear(s);
    multiply_tile<false, false>(s[0], q_tile + warp * 16 * pitch, pitch, k_tile, pitch, wide_d);
    multiply_tile<false, false>(s[1], q_tile + warp * 16 * pitch, pitch, k_tile + 32 * pitch, pitch, wide_d);
    __syncthreads();
    fetch_k(key + kKeyTile);
    float highest[2] = {most[0], most[1]}, part[2] = {0, 0};
    HEDDLE_UNROLL
    for (int n = 0; n < 8; ++n) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t column = key + n * 8 + lane % 4 * 2 + i % 2;
        float& score = s[n / 4][0][n % 4][i];
        float slope;
        score = score_of(score, args.scale, args.cap, slope);
        if (column >= from[i / 2] && column < seen[i / 2]) highest[i / 2] = fmaxf(highest[i / 2], score);
      }
    }
    HEDDLE_UNROLL
    for (int i = 0; i < 2; ++i) {
      highest[i] = fmaxf(highest[i], __shfl_xor_sync(kFullWarp, highest[i], 1));
      highest[i] = fmaxf(highest[i], __shfl_xor_sync(kFullWarp, highest[i], 2));
    }
    HEDDLE_UNROLL
    for (int n = 0; n < 8; ++n) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t column = key + n * 8 + lane % 4 * 2 + i % 2;
        const bool sees = column >= from[i / 2] && column < seen[i / 2];
        const float p = sees ? exp2f(s[n / 4][0][n % 4][i] - highest[i / 2]) : 0.0f;
        part[i / 2] += p;
        own_p[(lane / 4 + i / 2 * 8) * pitch_p + n * 8 + lane % 4 * 2 + i % 2] = rounded<X>(p);
      }
    }
    HEDDLE_UNROLL
    for (int i = 0; i < 2; ++i) {
      part[i] += __shfl_xor_sync(kFullWarp, part[i], 1);
      part[i] += __shfl_xor_sync(kFullWarp, part[i], 2);
      const float shrink = exp2f(most[i] - highest[i]);
      sum[i] = sum[i] * shrink + part[i];
      most[i] = highest[i];
      HEDDLE_UNROLL
      for (int n = 0; n < kValueParts; ++n) {
        HEDDLE_UNROLL
        for (int m = 0; m < 4; ++m) {
          o[n][0][m][i * 2] *= shrink;
          o[n][0][m][i * 2 + 1] *= shrink;
        }
      }
    }
    wait_for_copies<1>();
    __syncthreads();
    multiply_wide(o, own_p, pitch_p, v_tile, pitch_v, kKeyTile, dv);
    __syncthreads();
    fetch_v(key + kKeyTile);
  }
  wait_for_copies<0>();

  HEDDLE_UNROLL
  for (int i = 0; i < 2; ++i) {
    if (row[i] >= Sq) continue;
    const int64_t at = (sequence * Sq + row[i]) * args.h + head;
    const bool any = sum[i] > 0 || sum[i] != sum[i];
    float lse = any ? most[i] * kLn2 + logf(sum[i]) : -HUGE_VALF, a = 0, b = any ? 1 / sum[i] : 0;
    if (args.o_before != nullptr) {
      const float before = args.lse_before[at], higher = fmaxf(before, lse);
      a = expf(before - higher);
      const float c = expf(lse - higher), both = a + c;
      a /= both;
      b *= c / both;
      lse = higher + logf(both);
    }
    if (lane % 4 == 0) args.lse[at] = lse;
    HEDDLE_UNROLL
    for (int n = 0; n < kValueParts * 4; ++n) {
      HEDDLE_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int64_t column = n * 8 + lane % 4 * 2 + j;
        if (column >= dv) continue;
        float value = o[n / 4][0][n % 4][i * 2 + j] * b;
        if (args.o_before != nullptr) value += a * args.o_before[at * dv + column];
        if (args.wide_o) {
          static_cast<float*>(args.o)[at * dv + column] = value;
        } else {
          static_cast<X*>(args.o)[at * dv + column] = rounded<X>(value);
        }
      }
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kAttentionThreads) attention_delta(AttentionGradArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * (kAttentionThreads / kWarp) + threadIdx.x / kWarp;
  if (at >= args.B * args.Sq * args.h) return;
  float sum = 0;
  for (int64_t c = threadIdx.x % kWarp; c < args.v_dim; c += kWarp) {
    sum += to_float(static_cast<const X*>(args.d_o)[at * args.v_dim + c]) *
           to_float(static_cast<const X*>(args.o)[at * args.v_dim + c]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) args.delta[at] = sum;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kAttentionThreads) attention_dkv(AttentionGradArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  HEDDLE_SHARED(float, lse_tile, kInnerTile);
  HEDDLE_SHARED(float, delta_tile, kInnerTile);
  HEDDLE_SHARED(int64_t, seen_tile, kInnerTile);
  HEDDLE_SHARED(int64_t, from_tile, kInnerTile);
  const int64_t d = args.d, v_dim = args.v_dim, S = args.S, Sq = args.Sq, group = args.h / args.hk;
  const int pitch = padded_row(d, sizeof(X)), pitch_v = padded_row(v_dim, sizeof(X));
  const int pitch_p = padded_row(kInnerTile, sizeof(X));
  const int wide_d = pitch - kRowPad<X>, wide_v = pitch_v - kRowPad<X>;
  X* k_tile = reinterpret_cast<X*>(shared);
  X* v_tile = k_tile + kKeyTile * pitch;
  X* q_tile = v_tile + kKeyTile * pitch_v;
  X* do_tile = q_tile + kInnerTile * pitch;
  X* p_tile = do_tile + kInnerTile * pitch_v;

  const int64_t key = static_cast<int64_t>(blockIdx.x) * kKeyTile, kv = blockIdx.y, sequence = blockIdx.z;
  const int64_t kv_at = (sequence * S + key) * args.hk + kv;
  const bool wide = wide_rows<X>(args.q, d) && wide_rows<X>(args.k, d);
  const bool wide_value = wide_rows<X>(args.v, v_dim) && wide_rows<X>(args.d_o, v_dim);
  copy_tile(k_tile, pitch, kKeyTile, wide_d, static_cast<const X*>(args.k) + kv_at * d, args.hk * d, S - key, d,
            wide);
  copy_tile(v_tile, pitch_v, kKeyTile, wide_v, static_cast<const X*>(args.v) + kv_at * v_dim, args.hk * v_dim,
            S - key, v_dim, wide_value);
  end_copies();

  const int warp = static_cast<int>(threadIdx.x) / kTileLanes, lane = static_cast<int>(threadIdx.x) % kTileLanes;
  X* own_p = p_tile + warp * 16 * pitch_p;
  float dk[kHeadParts][1][4][4], dv[kValueParts][1][4][4];
  clear(dk);
  clear(dv);
  for (int64_t j = kv * group; j < (kv + 1) * group; ++j) {
    for (int64_t first = 0; first < Sq; first += kInnerTile) {
      if (seen_of(min(Sq, first + kInnerTile) - 1, args.seen) <= key) continue;
      if (first_of(sequence, first, args.seen) >= key + kKeyTile) break;
      const int64_t at = (sequence * Sq + first) * args.h + j;
      copy_tile(q_tile, pitch, kInnerTile, wide_d, static_cast<const X*>(args.q) + at * d, args.h * d, Sq - first,
                d, wide);
      copy_tile(do_tile, pitch_v, kInnerTile, wide_v, static_cast<const X*>(args.d_o) + at * v_dim, args.h * v_dim,
                Sq - first, v_dim, wide_value);
      end_copies();
      if (threadIdx.x < kInnerTile) {
        const bool there = first + threadIdx.x < Sq;
        const int64_t i = at + threadIdx.x * args.h;
        lse_tile[threadIdx.x] = there ? args.lse[i] * kLog2E : 0.0f;
        delta_tile[threadIdx.x] = there ? args.delta[i] : 0.0f;
        seen_tile[threadIdx.x] = there ? seen_of(first + threadIdx.x, args.seen) : 0;
        from_tile[threadIdx.x] = there ? first_of(sequence, first + threadIdx.x, args.seen) : 0;
      }
      wait_for_copies<0>();
      __syncthreads();
      float s[1][1][4][4], dp[1][1][4][4];
      clear(s);
      clear(dp);
      multiply_tile<false, false>(s[0], k_tile + warp * 16 * pitch, pitch, q_tile, pitch, wide_d);
      multiply_tile<false, false>(dp[0], v_tile + warp * 16 * pitch_v, pitch_v, do_tile, pitch_v, wide_v);
      HEDDLE_UNROLL
      for (int n = 0; n < 4; ++n) {
        HEDDLE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int query = n * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 * 8;
          const int64_t here = key + warp * 16 + row;
          const bool seen = here >= from_tile[query] && here < seen_tile[query];
          float slope;
          const float score = score_of(s[0][0][n][i], args.scale, args.cap, slope);
          const float p = seen ? exp2f(score - lse_tile[query]) : 0.0f;
          s[0][0][n][i] = p;
          dp[0][0][n][i] = p * (dp[0][0][n][i] - delta_tile[query]) * (args.scale * slope);
          own_p[row * pitch_p + query] = rounded<X>(p);
        }
      }
      __syncwarp();
      multiply_wide(dv, own_p, pitch_p, do_tile, pitch_v, kInnerTile, v_dim);
      __syncwarp();
      HEDDLE_UNROLL
      for (int n = 0; n < 4; ++n) {
        HEDDLE_UNROLL
        for (int i = 0; i < 4; ++i) {
          own_p[(lane / 4 + i / 2 * 8) * pitch_p + n * 8 + lane % 4 * 2 + i % 2] = rounded<X>(dp[0][0][n][i]);
        }
      }
      __syncwarp();
      multiply_wide(dk, own_p, pitch_p, q_tile, pitch, kInnerTile, d);
      __syncthreads();
    }
  }
  wait_for_copies<0>();
  X* dk_out = static_cast<X*>(args.dk);
  X* dv_out = static_cast<X*>(args.dv);
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t own = warp * 16 + lane / 4 + i / 2 * 8;
    if (key + own >= S) continue;
    const int64_t to = kv_at + own * args.hk;
    HEDDLE_UNROLL
    for (int n = 0; n < kHeadParts * 4; ++n) {
      const int64_t column = n * 8 + lane % 4 * 2 + i % 2;
      if (column < d) dk_out[to * d + column] = rounded<X>(dk[n / 4][0][n % 4][i]);
    }
    HEDDLE_UNROLL
    for (int n = 0; n < kValueParts * 4; ++n) {
      const int64_t column = n * 8 + lane % 4 * 2 + i % 2;
      if (column < v_dim) dv_out[to * v_dim + column] = rounded<X>(dv[n / 4][0][n % 4][i]);
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kAttentionThreads) attention_dq(AttentionGradArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const int64_t d = args.d, v_dim = args.v_dim, S = args.S, Sq = args.Sq;
  const int pitch = padded_row(d, sizeof(X)), pitch_v = padded_row(v_dim, sizeof(X));
  const int pitch_p = padded_row(kInnerTile, sizeof(X));
  const int wide_d = pitch - kRowPad<X>, wide_v = pitch_v - kRowPad<X>;
  X* q_tile = reinterpret_cast<X*>(shared);
  X* do_tile = q_tile + kQueryTile * pitch;
  X* k_tile = do_tile + kQueryTile * pitch_v;
  X* v_tile = k_tile + kInnerTile * pitch;
  X* p_tile = v_tile + kInnerTile * pitch_v;

  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kQueryTile;
  const int64_t head = blockIdx.y, kv = head / (args.h / args.hk), sequence = blockIdx.z;
  const int64_t q_at = (sequence * Sq + first) * args.h + head, kv_at = sequence * S * args.hk + kv;
  const bool wide = wide_rows<X>(args.q, d) && wide_rows<X>(args.k, d);
  const bool wide_value = wide_rows<X>(args.v, v_dim) && wide_rows<X>(args.d_o, v_dim);
  copy_tile(q_tile, pitch, kQueryTile, wide_d, static_cast<const X*>(args.q) + q_at * d, args.h * d, Sq - first, d,
            wide);
  copy_tile(do_tile, pitch_v, kQueryTile, wide_v, static_cast<const X*>(args.d_o) + q_at * v_dim, args.h * v_dim,
            Sq - first, v_dim, wide_value);
  end_copies();

  const int warp = static_cast<int>(threadIdx.x) / kTileLanes, lane = static_cast<int>(threadIdx.x) % kTileLanes;
  X* own_p = p_tile + warp * 16 * pitch_p;
  const int64_t most_seen = min(S, seen_of(min(Sq, first + kQueryTile) - 1, args.seen));
  int64_t row[2], seen[2], from[2];
  float lse[2], delta[2];
  HEDDLE_UNROLL
  for (int i = 0; i < 2; ++i) {
    row[i] = first + warp * 16 + lane / 4 + i * 8;
    const bool there = row[i] < Sq;
    seen[i] = there ? min(S, seen_of(row[i], args.seen)) : 0;
    from[i] = there ? first_of(sequence, row[i], args.seen) : 0;
    const int64_t at = (sequence * Sq + row[i]) * args.h + head;
    lse[i] = there ? args.lse[at] * kLog2E : 0.0f;
    delta[i] = there ? args.delta[at] : 0.0f;
  }
  float dq[kHeadParts][1][4][4];
  clear(dq);
  const int64_t begin = first_of(sequence, first, args.seen) / kInnerTile * kInnerTile;
  for (int64_t key = begin; key < most_seen; key += kInnerTile) {
    const int64_t at = kv_at + key * args.hk;
    copy_tile(k_tile, pitch, kInnerTile, wide_d, static_cast<const X*>(args.k) + at * d, args.hk * d, S - key, d,
              wide);
    copy_tile(v_tile, pitch_v, kInnerTile, wide_v, static_cast<const X*>(args.v) + at * v_dim, args.hk * v_dim,
              S - key, v_dim, wide_value);
    end_copies();
    wait_for_copies<0>();
    __syncthreads();
    float s[1][1][4][4], dp[1][1][4][4];
    clear(s);
    clear(dp);
    multiply_tile<false, false>(s[0], q_tile + warp * 16 * pitch, pitch, k_tile, pitch, wide_d);
    multiply_tile<false, false>(dp[0], do_tile + warp * 16 * pitch_v, pitch_v, v_tile, pitch_v, wide_v);
    HEDDLE_UNROLL
    for (int n = 0; n < 4; ++n) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int column = n * 8 + lane % 4 * 2 + i % 2;
        const bool sees = key + column >= from[i / 2] && key + column < seen[i / 2];
        float slope;
        const float score = score_of(s[0][0][n][i], args.scale, args.cap, slope);
        const float p = sees ? exp2f(score - lse[i / 2]) : 0.0f;
        own_p[(lane / 4 + i / 2 * 8) * pitch_p + column] =
            rounded<X>(p * (dp[0][0][n][i] - delta[i / 2]) * (args.scale * slope));
      }
    }
    __syncwarp();
    multiply_wide(dq, own_p, pitch_p, k_tile, pitch, kInnerTile, d);
    __syncthreads();
  }
  wait_for_copies<0>();
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (row[i / 2] >= Sq) continue;
    const int64_t at = ((sequence * Sq + row[i / 2]) * args.h + head) * d;
    HEDDLE_UNROLL
    for (int n = 0; n < kHeadParts * 4; ++n) {
      const int64_t column = n * 8 + lane % 4 * 2 + i % 2;
      if (column >= d) continue;
      float value = dq[n / 4][0][n % 4][i];
      if (args.dq_before != nullptr) value = args.dq_before[at + column] + value;
      if (args.wide_dq) {
        static_cast<float*>(args.dq)[at + column] = value;
      } else {
        static_cast<X*>(args.dq)[at + column] = rounded<X>(value);
      }
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kAttentionThreads) attention_sinks_wgrad(SinksGradArgs args) {
  HEDDLE_SHARED(float, of_warps, kAttentionThreads / kWarp);
  const int64_t sink = blockIdx.x, head = sink - args.first;
  const bool here = head >= 0 && head < args.h;
  float sum = 0;
  for (int64_t t = threadIdx.x; here && t < args.T; t += kAttentionThreads) {
    const int64_t at = t * args.h + head;
    float delta = 0;
    for (int64_t c = 0; c < args.v; ++c) {
      delta += to_float(static_cast<const X*>(args.d_o)[at * args.v + c]) *
               to_float(static_cast<const X*>(args.o)[at * args.v + c]);
    }
    sum += expf(args.sinks[sink] - args.lse[at]) * delta;
  }
  sum = block_sum(sum, of_warps);
  if (threadIdx.x == 0) args.acc[sink] = (args.overwrite ? 0.0f : args.acc[sink]) - sum;
}

#define ATTENTION(X)                                                      \
  template HEDDLE_KERNEL void attention<X>(AttentionArgs args);           \
  template HEDDLE_KERNEL void attention_delta<X>(AttentionGradArgs args); \
  template HEDDLE_KERNEL void attention_dkv<X>(AttentionGradArgs args);   \
  template HEDDLE_KERNEL void attention_dq<X>(AttentionGradArgs args);    \
  template HEDDLE_KERNEL void attention_sinks_wgrad<X>(SinksGradArgs args);
ATTENTION(float)
ATTENTION(Bf16)
#undef ATTENTION

}  // namespace heddle::kernels::cuda
