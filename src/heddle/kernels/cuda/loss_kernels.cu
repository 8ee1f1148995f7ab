// Cross entropy from logits: a running maximum and sum in one pass over a row. See loss_kernels.h.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/loss_kernels.h"

namespace heddle::kernels::cuda {

namespace {
constexpr int kThreads = 256;

HEDDLE_DEVICE float lowest() { return -3.402823466e38f; }
}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) cross_entropy(LossArgs args) {
  HEDDLE_SHARED(float, board, kThreads / kWarp);
  const int64_t t = blockIdx.x, V = args.V;
  const X* x = static_cast<const X*>(args.logits_TV) + t * V;
  const bool wide = wide_rows<X>(args.logits_TV, V);
  float most = lowest(), sum = 0;
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < V; at += kThreads * kPack) {
    float v[kPack];
    load_pack(x + at, V - at, wide, v);
    float here = most;
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) here = i < V - at ? fmaxf(here, v[i]) : here;
    sum *= expf(most - here);
    most = here;
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) sum += i < V - at ? expf(v[i] - most) : 0.0f;
  }
  const float all = block_max(most, board);
  sum = block_sum(sum * expf(most - all), board);
  if (threadIdx.x > 0) return;
  const float lse = all + logf(sum);
  args.lse_T[t] = lse;
  const int32_t label = args.labels_T[t];
  // A label that is nowhere in the vocabulary makes the loss not a number.
  args.loss_T[t] = label < 0   ? 0.0
                   : label < V ? static_cast<double>(lse) - static_cast<double>(to_float(x[label]))
                               : static_cast<double>(not_a_number());
}

template <class L, class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) cross_entropy_dgrad(LossGradArgs args) {
  const int64_t t = blockIdx.x, V = args.V;
  const L* x = static_cast<const L*>(args.logits_TV) + t * V;
  X* to = static_cast<X*>(args.dlogits_TV) + t * V;
  const bool wide = wide_rows<L>(args.logits_TV, V) && wide_rows<X>(args.dlogits_TV, V);
  const int32_t label = args.labels_T[t];
  const float lse = args.lse_T[t], scale = args.scales[args.scale_index];
  const int64_t at = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kPack;
  if (at >= V) return;
  float v[kPack];
  load_pack(x + at, V - at, wide, v);
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    v[i] = label < 0 ? 0.0f : scale * (expf(v[i] - lse) - (at + i == label ? 1.0f : 0.0f));
  }
  store_pack(to + at, V - at, wide, v);
}

HEDDLE_KERNEL void sharded_loss(ShardedLossArgs args) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= args.T) return;
  float most = args.lse_parts[t];
  for (int64_t r = 1; r < args.ranks; ++r) most = fmaxf(most, args.lse_parts[r * args.T + t]);
  float sum = 0;
  for (int64_t r = 0; r < args.ranks; ++r) sum += expf(args.lse_parts[r * args.T + t] - most);
  const float lse = most + logf(sum);
  args.lse_T[t] = lse;
  args.loss_T[t] = args.labels_T[t] >= 0 ? static_cast<double>(lse) - static_cast<double>(args.lse_part_T[t]) : 0.0;
}

template HEDDLE_KERNEL void cross_entropy<float>(LossArgs args);
template HEDDLE_KERNEL void cross_entropy<Bf16>(LossArgs args);
template HEDDLE_KERNEL void cross_entropy_dgrad<float, float>(LossGradArgs args);
template HEDDLE_KERNEL void cross_entropy_dgrad<float, Bf16>(LossGradArgs args);
template HEDDLE_KERNEL void cross_entropy_dgrad<Bf16, Bf16>(LossGradArgs args);

}  // namespace heddle::kernels::cuda
