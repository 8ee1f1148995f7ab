// See logit_kernels.h. Kimi K2, arXiv 2507.20534, section 2.1.
#include "heddle/kernels/cuda/attention/logit_kernels.h"
#include "heddle/kernels/cuda/attention/seen_rows.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

template <class X>
HEDDLE_DEVICE float product_of(const X* q, const X* k, int64_t d) {
  float sum = 0;
  for (int64_t c = 0; c < d; ++c) sum += to_float(q[c]) * to_float(k[c]);
  return sum;
}

HEDDLE_DEVICE double power_of(double factor, double power) {
  return power == 0 ? 1 : power == 1 ? factor : sqrt(factor);
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kLogitThreads) max_logits(MaxLogitsArgs args) {
  HEDDLE_SHARED(float, board, kLogitThreads / kWarp);
  const int64_t head = blockIdx.y, kv = head / (args.h / args.hk), first_row = blockIdx.x * kLogitRows;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float most = -HUGE_VALF;
  for (int64_t t = first_row + threadIdx.x / kWarp; t < min(first_row + kLogitRows, args.T);
       t += kLogitThreads / kWarp) {
    const float bound = args.lse[t * args.h + head];
    if (bound <= args.above) {
      most = fmaxf(most, bound);
      continue;
    }
    const int64_t b = t / args.Sq, i = t % args.Sq;
    const int32_t* chosen = args.chosen == nullptr ? nullptr : args.chosen + t * args.c;
    const int64_t begin = chosen != nullptr ? 0 : first_of(b, i, args.seen);
    const int64_t end = chosen != nullptr ? args.c : seen_of(i, args.seen);
    const X* q = static_cast<const X*>(args.q) + (t * args.h + head) * args.d;
    for (int64_t j = begin + lane; j < end; j += kWarp) {
      const int64_t key = chosen != nullptr ? chosen[j] : j;
      if (key < 0) break;
      const X* k = static_cast<const X*>(args.k) + ((b * args.S + key) * args.hk + kv) * args.d;
      most = fmaxf(most, product_of(q, k, args.d) * args.scale);
    }
  }
  most = block_max(most, board);
  if (threadIdx.x != 0) return;
  float& part = args.parts[head * gridDim.x + blockIdx.x];
  part = args.again ? fmaxf(part, most) : most;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) keep_largest(KeepLargestArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i > args.all) return;
  if (i == args.all) {
    args.most[i] = args.mark;
    return;
  }
  double most = args.overwrite ? 0 : args.most[i];
  const int64_t head = i - args.first;
  if (head >= 0 && head < args.h) {
    for (int64_t p = 0; p < args.blocks; ++p) {
      const double part = args.parts[head * args.blocks + p];
      if (part > most) most = part;
    }
  }
  args.most[i] = most;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) head_factors(HeadFactorsArgs args) {
  HEDDLE_SHARED(int, of_warps, 256 / kWarp);
  int scaled = 0;
  for (int64_t head = threadIdx.x; head < args.heads; head += 256) {
    double factor = 1;
    for (int64_t r = 0; r < args.ranks; ++r) {
      const double most = args.most[r * (args.heads + 1) + head];
      if (most > args.above && args.above / most < factor) factor = args.above / most;
    }
    if (factor < 1) scaled = 1;
    args.factors[2 * head] = static_cast<float>(power_of(factor, args.first_power));
    args.factors[2 * head + 1] = static_cast<float>(power_of(factor, args.rest_power));
  }
  scaled = block_sum(scaled, of_warps);
  if (threadIdx.x != 0) return;
  for (int64_t r = 0; r < args.ranks; ++r) {
    if (args.most[r * (args.heads + 1) + args.heads] == args.mark) args.run[0] = r;
  }
  args.run[1] = args.clip[0] == 0 ? 0 : scaled;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) scale_heads(ScaleHeadsArgs args) {
  constexpr uint32_t kHalf = 0x8000, kSign = 0x80000000u;
  if (args.run[1] == 0) return;
  const int64_t begin = args.run[0] * args.count, all = args.heads * args.rows * args.columns;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count && begin + i < all;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t row = (begin + i) / args.columns;
    const float factor = args.factors[2 * (row / args.rows) + (row % args.rows < args.first ? 0 : 1)];
    if (factor == 1) continue;
    if (args.master != nullptr) {
      args.master[i] *= factor;
      continue;
    }
    auto* wide_v = static_cast<float*>(args.v);
    auto* v = static_cast<Bf16*>(args.v);
    const uint32_t moment = word_of(args.wide_v ? wide_v[i] : to_float(v[i])), low = args.low[i];
    const bool up = low == kHalf ? (moment & kSign) != 0 : low > kHalf;
    const float p = float_of_word((word_of(to_float(args.w[i])) - (up ? 0x10000u : 0u)) | low) * factor;
    const uint32_t word = word_of(p), kept = word & 0xffffu;
    const bool raised = kept == kHalf && rounded<Bf16>(p).bits != word >> 16;
    args.w[i] = rounded<Bf16>(p);
    args.low[i] = static_cast<uint16_t>(kept);
    const float signed_moment = float_of_word((moment & ~kSign) | (raised ? kSign : 0u));
    if (args.wide_v) {
      wide_v[i] = signed_moment;
    } else {
      v[i] = rounded<Bf16>(signed_moment);
    }
  }
}

template HEDDLE_KERNEL void max_logits<float>(MaxLogitsArgs args);
template HEDDLE_KERNEL void max_logits<Bf16>(MaxLogitsArgs args);

}  // namespace heddle::kernels::cuda
