// The gradient of attention, in two sweeps. One is for dk and dv and adds up over queries; the other is for dq and
// adds up over keys. Nothing is added atomically; scores are made anew in each (seven products where one sweep with
// atomic additions takes five). FlashAttention-2, arXiv 2307.08691.
//
// A block has a warp for 16 rows and a slice of a head. Rows are keys (dkv) or queries (dq).
#include "heddle/kernels/cuda/attention/attention_tiles.h"

namespace heddle::kernels::cuda {

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

template <class X, int kSlices>
HEDDLE_KERNEL void HEDDLE_BOUNDS(grad_threads(kSlices)) attention_dkv(AttentionGradArgs args) {
  constexpr int kRows = grad_rows(kSlices), kInnerTile = grad_inner_rows(kSlices);
  constexpr int kOwnRows = kInnerTile / kSlices, kFragments = kOwnRows / 8;  // queries whose scores a warp makes
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
  X* v_tile = k_tile + kRows * pitch;
  X* q_tile = v_tile + kRows * pitch_v;
  X* do_tile = q_tile + kInnerTile * pitch;
  X* p_tile = do_tile + kInnerTile * pitch_v;

  const int64_t key = static_cast<int64_t>(blockIdx.x) * kRows, kv = blockIdx.y, sequence = blockIdx.z;
  const int64_t kv_at = (sequence * S + key) * args.hk + kv;
  const bool wide = wide_rows<X>(args.q, d) && wide_rows<X>(args.k, d);
  const bool wide_value = wide_rows<X>(args.v, v_dim) && wide_rows<X>(args.d_o, v_dim);
  copy_tile(k_tile, pitch, kRows, wide_d, static_cast<const X*>(args.k) + kv_at * d, args.hk * d, S - key, d, wide);
  copy_tile(v_tile, pitch_v, kRows, wide_v, static_cast<const X*>(args.v) + kv_at * v_dim, args.hk * v_dim, S - key,
            v_dim, wide_value);
  end_copies();

  const int lane = static_cast<int>(threadIdx.x) % kTileLanes, tile = static_cast<int>(threadIdx.x) / kTileLanes;
  const int warp = tile % (kRows / 16), slice = tile / (kRows / 16);
  const int own = slice * kOwnRows, own_column = slice * kSliceColumns;
  X* own_p = p_tile + warp * 16 * pitch_p;
  float dk[head_tiles(kSlices)][1][4][4], dv[kValueTiles][1][4][4];
  clear(dk);
  clear(dv);
  for (int64_t j = kv * group; j < (kv + 1) * group; ++j) {
    for (int64_t first = 0; first < Sq; first += kInnerTile) {
      if (seen_of(min(Sq, first + kInnerTile) - 1, args.seen) <= key) continue;
      if (first_of(sequence, first, args.seen) >= key + kRows) break;
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
      float s[1][1][kFragments][4], dp[1][1][kFragments][4];
      clear(s);
      clear(dp);
      multiply_tile<false, false>(s[0], k_tile + warp * 16 * pitch, pitch, q_tile + own * pitch, pitch, wide_d);
      multiply_tile<false, false>(dp[0], v_tile + warp * 16 * pitch_v, pitch_v, do_tile + own * pitch_v, pitch_v,
                                  wide_v);
      HEDDLE_UNROLL
      for (int n = 0; n < kFragments; ++n) {
        HEDDLE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int query = own + n * 8 + lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 * 8;
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
      wait_for_scores<kSlices>();
      multiply_wide(dv, own_p, pitch_p, do_tile + own_column, pitch_v, kInnerTile, v_dim - own_column);
      wait_for_scores<kSlices>();
      HEDDLE_UNROLL
      for (int n = 0; n < kFragments; ++n) {
        HEDDLE_UNROLL
        for (int i = 0; i < 4; ++i) {
          own_p[(lane / 4 + i / 2 * 8) * pitch_p + own + n * 8 + lane % 4 * 2 + i % 2] = rounded<X>(dp[0][0][n][i]);
        }
      }
      wait_for_scores<kSlices>();
      multiply_wide(dk, own_p, pitch_p, q_tile + own_column, pitch, kInnerTile, d - own_column);
      __syncthreads();
    }
  }
  wait_for_copies<0>();
  X* dk_out = static_cast<X*>(args.dk);
  X* dv_out = static_cast<X*>(args.dv);
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int64_t to_row = warp * 16 + lane / 4 + i / 2 * 8;
    if (key + to_row >= S) continue;
    const int64_t to = kv_at + to_row * args.hk;
    HEDDLE_UNROLL
    for (int n = 0; n < head_tiles(kSlices) * 4; ++n) {
      const int64_t column = own_column + n * 8 + lane % 4 * 2 + i % 2;
      if (column < d) dk_out[to * d + column] = rounded<X>(dk[n / 4][0][n % 4][i]);
    }
    HEDDLE_UNROLL
    for (int n = 0; n < kValueTiles * 4; ++n) {
      const int64_t column = own_column + n * 8 + lane % 4 * 2 + i % 2;
      if (column < v_dim) dv_out[to * v_dim + column] = rounded<X>(dv[n / 4][0][n % 4][i]);
    }
  }
}

template <class X, int kSlices>
HEDDLE_KERNEL void HEDDLE_BOUNDS(grad_threads(kSlices)) attention_dq(AttentionGradArgs args) {
  constexpr int kRows = grad_rows(kSlices), kInnerTile = grad_inner_rows(kSlices);
  constexpr int kOwnRows = kInnerTile / kSlices, kFragments = kOwnRows / 8;  // keys whose scores a warp makes
  HEDDLE_DYNAMIC_SHARED(shared);
  const int64_t d = args.d, v_dim = args.v_dim, S = args.S, Sq = args.Sq;
  const int pitch = padded_row(d, sizeof(X)), pitch_v = padded_row(v_dim, sizeof(X));
  const int pitch_p = padded_row(kInnerTile, sizeof(X));
  const int wide_d = pitch - kRowPad<X>, wide_v = pitch_v - kRowPad<X>;
  X* q_tile = reinterpret_cast<X*>(shared);
  X* do_tile = q_tile + kRows * pitch;
  X* k_tile = do_tile + kRows * pitch_v;
  X* v_tile = k_tile + kInnerTile * pitch;
  X* p_tile = v_tile + kInnerTile * pitch_v;

  const int64_t first = (gridDim.x - 1 - static_cast<int64_t>(blockIdx.x)) * kRows;
  const int64_t head = blockIdx.y, kv = head / (args.h / args.hk), sequence = blockIdx.z;
  const int64_t q_at = (sequence * Sq + first) * args.h + head, kv_at = sequence * S * args.hk + kv;
  const bool wide = wide_rows<X>(args.q, d) && wide_rows<X>(args.k, d);
  const bool wide_value = wide_rows<X>(args.v, v_dim) && wide_rows<X>(args.d_o, v_dim);
  copy_tile(q_tile, pitch, kRows, wide_d, static_cast<const X*>(args.q) + q_at * d, args.h * d, Sq - first, d,
            wide);
  copy_tile(do_tile, pitch_v, kRows, wide_v, static_cast<const X*>(args.d_o) + q_at * v_dim, args.h * v_dim,
            Sq - first, v_dim, wide_value);
  end_copies();

  const int lane = static_cast<int>(threadIdx.x) % kTileLanes, tile = static_cast<int>(threadIdx.x) / kTileLanes;
  const int warp = tile % (kRows / 16), slice = tile / (kRows / 16);
  const int own = slice * kOwnRows, own_column = slice * kSliceColumns;
  X* own_p = p_tile + warp * 16 * pitch_p;
  const int64_t most_seen = min(S, seen_of(min(Sq, first + kRows) - 1, args.seen));
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
  float dq[head_tiles(kSlices)][1][4][4];
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
    float s[1][1][kFragments][4], dp[1][1][kFragments][4];
    clear(s);
    clear(dp);
    multiply_tile<false, false>(s[0], q_tile + warp * 16 * pitch, pitch, k_tile + own * pitch, pitch, wide_d);
    multiply_tile<false, false>(dp[0], do_tile + warp * 16 * pitch_v, pitch_v, v_tile + own * pitch_v, pitch_v,
                                wide_v);
    HEDDLE_UNROLL
    for (int n = 0; n < kFragments; ++n) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int column = own + n * 8 + lane % 4 * 2 + i % 2;
        const bool sees = key + column >= from[i / 2] && key + column < seen[i / 2];
        float slope;
        const float score = score_of(s[0][0][n][i], args.scale, args.cap, slope);
        const float p = sees ? exp2f(score - lse[i / 2]) : 0.0f;
        own_p[(lane / 4 + i / 2 * 8) * pitch_p + column] =
            rounded<X>(p * (dp[0][0][n][i] - delta[i / 2]) * (args.scale * slope));
      }
    }
    wait_for_scores<kSlices>();
    multiply_wide(dq, own_p, pitch_p, k_tile + own_column, pitch, kInnerTile, d - own_column);
    __syncthreads();
  }
  wait_for_copies<0>();
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) {
    if (row[i / 2] >= Sq) continue;
    const int64_t at = ((sequence * Sq + row[i / 2]) * args.h + head) * d;
    HEDDLE_UNROLL
    for (int n = 0; n < head_tiles(kSlices) * 4; ++n) {
      const int64_t column = own_column + n * 8 + lane % 4 * 2 + i % 2;
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

#define GRADIENT(X, slices)                                                     \
  template HEDDLE_KERNEL void attention_dkv<X, slices>(AttentionGradArgs args); \
  template HEDDLE_KERNEL void attention_dq<X, slices>(AttentionGradArgs args);
GRADIENT(float, 1)
GRADIENT(float, 2)
GRADIENT(Bf16, 1)
GRADIENT(Bf16, 2)
GRADIENT(Bf16, 4)
#undef GRADIENT
template HEDDLE_KERNEL void attention_delta<float>(AttentionGradArgs args);
template HEDDLE_KERNEL void attention_delta<Bf16>(AttentionGradArgs args);
template HEDDLE_KERNEL void attention_sinks_wgrad<float>(SinksGradArgs args);
template HEDDLE_KERNEL void attention_sinks_wgrad<Bf16>(SinksGradArgs args);

}  // namespace heddle::kernels::cuda
