// Cross entropy from logits: a running maximum and sum in one pass over a row; losses of pairs. See loss_kernels.h.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/loss_kernels.h"

namespace heddle::kernels::cuda {

namespace {
constexpr int kThreads = 256;

HEDDLE_DEVICE float lowest() { return -3.402823466e38f; }

HEDDLE_DEVICE double square_of(float x) { return static_cast<double>(x) * static_cast<double>(x); }

/// kernels/logit_z.h
HEDDLE_DEVICE float slope_of(float z_weight, float lse) {
  const float least = 1.0f / (1 << 20), slope = 1.0f + 2.0f * z_weight * lse;
  return slope < least && slope > -least ? least : slope;
}
}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) cross_entropy(LossArgs args) {
  HEDDLE_SHARED(float, of_warps, kThreads / kWarp);
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
  const float all = block_max(most, of_warps);
  sum = block_sum(sum * expf(most - all), of_warps);
  if (threadIdx.x > 0) return;
  const float lse = all + logf(sum);
  args.lse_T[t] = lse;
  const int32_t label = args.labels_T[t];
  // A label that is nowhere in the vocabulary makes the loss not a number.
  const double weight = args.weights_T != nullptr ? args.weights_T[t] : 1.0;
  args.loss_T[t] = label < 0   ? 0.0
                   : label < V ? weight * (static_cast<double>(lse) - static_cast<double>(to_float(x[label])))
                               : static_cast<double>(not_a_number());
  if (args.z_T != nullptr) args.z_T[t] = label < 0 ? 0.0 : weight * square_of(lse);
}

template <class L, class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) cross_entropy_dgrad(LossGradArgs args) {
  const int64_t t = blockIdx.x, V = args.V;
  const L* x = static_cast<const L*>(args.logits_TV) + t * V;
  X* to = static_cast<X*>(args.dlogits_TV) + t * V;
  const bool wide = wide_rows<L>(args.logits_TV, V) && wide_rows<X>(args.dlogits_TV, V);
  const int32_t label = args.labels_T[t];
  const float lse = args.lse_T[t], slope = slope_of(args.z_weight, lse), own = 1.0f / slope;
  float scale = args.scales != nullptr ? args.scales[args.scale_index] : 1.0f;
  if (args.weights_T != nullptr) scale *= static_cast<float>(args.weights_T[t]);
  scale *= slope;
  const int64_t at = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kPack;
  if (at >= V) return;
  float v[kPack];
  load_pack(x + at, V - at, wide, v);
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    v[i] = label < 0 ? 0.0f : scale * (expf(v[i] - lse) - (at + i == label ? own : 0.0f));
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
  const bool here = args.labels_T[t] >= 0;
  const double weight = args.weights_T != nullptr ? args.weights_T[t] : 1.0;
  double loss = here ? weight * (static_cast<double>(lse) - static_cast<double>(args.lse_part_T[t])) : 0.0;
  if (args.losses_part_T != nullptr) loss += args.losses_part_T[t];
  args.loss_T[t] = loss;
  if (args.z_T != nullptr) args.z_T[t] = here ? weight * square_of(lse) : 0.0;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) sequence_sums(SequenceSumArgs args) {
  HEDDLE_SHARED(double, of_warps, kThreads);
  const int64_t b = blockIdx.x;
  double sum = 0;
  for (int64_t s = threadIdx.x; s < args.S; s += kThreads) sum += args.losses_T[b * args.S + s];
  of_warps[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  double all = 0;
  for (int i = 0; i < kThreads; ++i) all += of_warps[i];
  args.sums_B[b] = all;
}

HEDDLE_KERNEL void sequence_spread(SequenceSpreadArgs args) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t < args.T) args.dlosses_T[t] = args.dsums_B[t / args.S];
}

namespace {

HEDDLE_DEVICE double log_sigmoid(double x) { return (x < 0 ? x : 0.0) - log1p(exp(x < 0 ? x : -x)); }

HEDDLE_DEVICE double reward(const PreferenceArgs& args, int64_t sequence) {
  return args.beta * (args.references_B[sequence] - args.sums_B[sequence]);
}
/// False for pairs that fill up a batch: their reference is not a number.
HEDDLE_DEVICE bool counts(const PreferenceArgs& args, int64_t pair) {
  const double chosen = args.references_B[2 * pair], rejected = args.references_B[2 * pair + 1];
  return chosen == chosen && rejected == rejected;
}

}  // namespace

HEDDLE_KERNEL void preference_loss(PreferenceArgs args) {
  if (threadIdx.x > 0) return;
  double loss = 0, chosen_sum = 0, rejected_sum = 0, margins = 0, right = 0;
  for (int64_t p = 0; p < args.pairs; ++p) {
    if (!counts(args, p)) continue;
    const double chosen = reward(args, 2 * p), rejected = reward(args, 2 * p + 1), margin = chosen - rejected;
    loss -= (1 - args.smoothing) * log_sigmoid(margin) + args.smoothing * log_sigmoid(-margin);
    chosen_sum += chosen;
    rejected_sum += rejected;
    margins += margin;
    right += chosen > rejected ? 1 : 0;
  }
  args.loss[0] = loss / args.ranks;
  args.chosen[0] = chosen_sum / args.ranks;
  args.rejected[0] = rejected_sum / args.ranks;
  args.margin[0] = margins / args.ranks;
  args.accuracy[0] = right / args.ranks;
}

HEDDLE_KERNEL void preference_gradient(PreferenceArgs args) {
  if (threadIdx.x > 0) return;
  const double scale = static_cast<double>(args.scales[args.scale_index]);
  for (int64_t p = 0; p < args.pairs; ++p) {
    const double margin = reward(args, 2 * p) - reward(args, 2 * p + 1);
    const double slope =
        counts(args, p)
            ? scale * args.beta *
                  ((1 - args.smoothing) * exp(log_sigmoid(-margin)) - args.smoothing * exp(log_sigmoid(margin)))
            : 0.0;
    args.dsums_B[2 * p] = slope;
    args.dsums_B[2 * p + 1] = -slope;
  }
}

template HEDDLE_KERNEL void cross_entropy<float>(LossArgs args);
template HEDDLE_KERNEL void cross_entropy<Bf16>(LossArgs args);
template HEDDLE_KERNEL void cross_entropy_dgrad<float, float>(LossGradArgs args);
template HEDDLE_KERNEL void cross_entropy_dgrad<float, Bf16>(LossGradArgs args);
template HEDDLE_KERNEL void cross_entropy_dgrad<Bf16, Bf16>(LossGradArgs args);

}  // namespace heddle::kernels::cuda
