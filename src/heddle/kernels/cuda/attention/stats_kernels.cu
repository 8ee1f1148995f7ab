// Around a library's attention. See stats_kernels.h.
#include "heddle/kernels/cuda/attention/stats_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

/// The place of number i of [B, h, rows] among [B·S, h].
HEDDLE_DEVICE int64_t lse_at(int64_t i, const StatsArgs& args) {
  const int64_t row = i % args.rows, head = i / args.rows % args.h, b = i / args.rows / args.h;
  return (b * args.S + args.first + row) * args.h + head;
}

}  // namespace

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) stats_of_lse(StatsArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < args.B * args.h * args.rows) args.to[i] = args.from[lse_at(i, args)];
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) lse_of_stats(StatsArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < args.B * args.h * args.rows) args.to[lse_at(i, args)] = args.from[i];
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) join_part(JoinArgs args) {
  const int64_t row = blockIdx.x, s = row % args.S, b = row / args.S, W = args.h * args.v;
  const bool mine = s >= args.first && s < args.first + args.rows;
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < W; at += 256 * kPack) {
    const int64_t head = at / args.v;
    const float part = mine ? args.stats[(b * args.h + head) * args.rows + s - args.first] : -HUGE_VALF;
    float lse = part, a = 0, c = 1;
    if (args.o_before != nullptr) {
      const float before = args.lse_before[row * args.h + head], higher = fmaxf(before, part);
      a = expf(before - higher);
      c = expf(part - higher);
      const float both = a + c;
      a /= both;
      c /= both;
      lse = higher + logf(both);
    }
    float o[kPack] = {}, other[kPack];
    if (mine) {
      load_pack(args.o_part + row * W + at, kPack, true, o);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) o[i] *= c;
    }
    if (args.o_before != nullptr) {
      load_pack(args.o_before + row * W + at, kPack, true, other);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) o[i] += a * other[i];
    }
    store_pack(args.o + row * W + at, kPack, true, o);
    if (at % args.v == 0) args.lse[row * args.h + head] = lse;
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) add_part(AddPartArgs args) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack;
  if (at >= args.B * args.S * args.W) return;
  const int64_t s = at / args.W % args.S;
  float sum[kPack] = {}, part[kPack];
  if (args.before != nullptr) load_pack(args.before + at, kPack, true, sum);
  if (s >= args.first && s < args.first + args.rows) {
    load_pack(args.part + at, kPack, true, part);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) sum[i] += part[i];
  }
  if (args.wide) {
    store_pack(static_cast<float*>(args.to) + at, kPack, true, sum);
  } else {
    store_pack(static_cast<Bf16*>(args.to) + at, kPack, true, sum);
  }
}

}  // namespace heddle::kernels::cuda
