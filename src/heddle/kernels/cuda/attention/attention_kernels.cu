// attention in one sweep over the keys with a running maximum. FlashAttention-2, arXiv 2307.08691.
//
// A block has four warps of 16 queries each for every slice of a head. Scores p go through shared memory between
// their two products, rounded to the type of the operands.
#include "heddle/kernels/cuda/attention/attention_tiles.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE float lowest() { return -3.402823466e38f; }

}  // namespace

template <class X, int kSlices>
HEDDLE_KERNEL void HEDDLE_BOUNDS(attention_threads(kSlices)) attention(AttentionArgs args) {
  constexpr int kOwnKeys = kKeyTile / kSlices;  // whose scores a warp makes
  constexpr int kFragments = kOwnKeys < 32 ? kOwnKeys / 8 : 4;
  HEDDLE_DYNAMIC_SHARED(shared);
  HEDDLE_SHARED(float, of_slices, kSlices == 1 ? 1 : kSlices * kQueryTile);
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

  const int lane = static_cast<int>(threadIdx.x) % kTileLanes, tile = static_cast<int>(threadIdx.x) / kTileLanes;
  const int warp = tile % (kQueryTile / 16), slice = tile / (kQueryTile / 16);
  const int own_key = slice * kOwnKeys, own_column = slice * kSliceColumns;
  X* own_p = p_tile + warp * 16 * pitch_p;
  int64_t row[2], seen[2], from[2];
  float most[2], sum[2];
  HEDDLE_UNROLL
  for (int i = 0; i < 2; ++i) {
    row[i] = first + warp * 16 + lane / 4 + i * 8;
    seen[i] = row[i] < Sq ? min(S, seen_of(row[i], args.seen)) : 0;
    from[i] = row[i] < Sq ? first_of(sequence, row[i], args.seen) : 0;
    most[i] = args.sinks != nullptr ? args.sinks[head] * kLog2E : lowest();
    sum[i] = args.sinks != nullptr && slice == 0 ? 1 : 0;
  }
  float o[kValueTiles][1][4][4];
  clear(o);
  for (int64_t key = begin; key < most_seen; key += kKeyTile) {
    wait_for_copies<1>();
    __syncthreads();
    float s[kOwnKeys / 8 / kFragments][1][kFragments][4];
    clear(s);
    HEDDLE_UNROLL
    for (int n = 0; n < kOwnKeys / 8 / kFragments; ++n) {
      multiply_tile<false, false>(s[n], q_tile + warp * 16 * pitch, pitch, k_tile + (own_key + n * 32) * pitch,
                                  pitch, wide_d);
    }
    __syncthreads();
    fetch_k(key + kKeyTile);
    float highest[2] = {most[0], most[1]}, part[2] = {0, 0};
    HEDDLE_UNROLL
    for (int n = 0; n < kOwnKeys / 8; ++n) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t column = key + own_key + n * 8 + lane % 4 * 2 + i % 2;
        float& score = s[n / kFragments][0][n % kFragments][i];
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
    if constexpr (kSlices > 1) {
      HEDDLE_UNROLL
      for (int i = 0; i < 2; ++i) of_slices[slice * kQueryTile + warp * 16 + lane / 4 + i * 8] = highest[i];
      __syncthreads();
      HEDDLE_UNROLL
      for (int i = 0; i < 2; ++i) {
        HEDDLE_UNROLL
        for (int other = 0; other < kSlices; ++other)
          highest[i] = fmaxf(highest[i], of_slices[other * kQueryTile + warp * 16 + lane / 4 + i * 8]);
      }
    }
    HEDDLE_UNROLL
    for (int n = 0; n < kOwnKeys / 8; ++n) {
      HEDDLE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int64_t column = key + own_key + n * 8 + lane % 4 * 2 + i % 2;
        const bool sees = column >= from[i / 2] && column < seen[i / 2];
        const float p = sees ? exp2f(s[n / kFragments][0][n % kFragments][i] - highest[i / 2]) : 0.0f;
        part[i / 2] += p;
        own_p[(lane / 4 + i / 2 * 8) * pitch_p + own_key + n * 8 + lane % 4 * 2 + i % 2] = rounded<X>(p);
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
      for (int n = 0; n < kValueTiles; ++n) {
        HEDDLE_UNROLL
        for (int m = 0; m < 4; ++m) {
          o[n][0][m][i * 2] *= shrink;
          o[n][0][m][i * 2 + 1] *= shrink;
        }
      }
    }
    wait_for_copies<1>();
    __syncthreads();
    multiply_wide(o, own_p, pitch_p, v_tile + own_column, pitch_v, kKeyTile, dv - own_column);
    __syncthreads();
    fetch_v(key + kKeyTile);
  }
  wait_for_copies<0>();
  if constexpr (kSlices > 1) {
    __syncthreads();  // all have read the last maxima
    HEDDLE_UNROLL
    for (int i = 0; i < 2; ++i) of_slices[slice * kQueryTile + warp * 16 + lane / 4 + i * 8] = sum[i];
    __syncthreads();
    HEDDLE_UNROLL
    for (int i = 0; i < 2; ++i) {
      sum[i] = 0;
      HEDDLE_UNROLL
      for (int other = 0; other < kSlices; ++other)
        sum[i] += of_slices[other * kQueryTile + warp * 16 + lane / 4 + i * 8];
    }
  }

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
    if (lane % 4 == 0 && slice == 0) args.lse[at] = lse;
    HEDDLE_UNROLL
    for (int n = 0; n < kValueTiles * 4; ++n) {
      HEDDLE_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int64_t column = own_column + n * 8 + lane % 4 * 2 + j;
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

#define ATTENTION(X, slices) template HEDDLE_KERNEL void attention<X, slices>(AttentionArgs args);
ATTENTION(float, 1)
ATTENTION(float, 2)
ATTENTION(Bf16, 1)
ATTENTION(Bf16, 2)
ATTENTION(Bf16, 4)
#undef ATTENTION

}  // namespace heddle::kernels::cuda
