// Margins of choices in bins, and biases moved to their quantiles. See balance_kernels.h. Nothing is added
// atomically: a block has the bins of its expert, a thread each.
#include "heddle/kernels/cuda/router/balance_kernels.h"
#include "heddle/kernels/cuda/router/top.h"
#include "heddle/ops/margin_bins.h"

namespace heddle::kernels::cuda {

HEDDLE_KERNEL void HEDDLE_BOUNDS(kRouterWarps* kWarp) middles_of_tokens(MarginArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / kWarp, E = args.E;
  if (t >= args.T) return;
  const WarpMemory mine = memory_of_warp(shared, E);
  for (int64_t e = lane; e < E; e += kWarp) {
    mine.a[e] = args.s_TE[t * E + e] + args.bias_E[e];
    mine.taken[e] = 0;
  }
  __syncwarp();
  float last = 0, next = 0;
  for (int j = 0; j <= args.k; ++j) {
    const int e = best_open(mine.a, mine.taken, static_cast<int>(E));
    last = next;
    next = mine.a[e];
    __syncwarp();
    if (lane == 0) mine.taken[e] = 1;
    __syncwarp();
  }
  if (lane == 0) args.middle_T[t] = (last + next) / 2;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kMarginThreads) count_margins(MarginArgs args) {
  static_assert(kMarginThreads >= kMarginBins, "a thread a bin");
  HEDDLE_SHARED(int32_t, bins, kMarginThreads);
  const int64_t e = blockIdx.x, E = args.E;
  const auto own = static_cast<int32_t>(threadIdx.x);
  const float bias = args.bias_E[e];
  int32_t count = 0;
  for (int64_t from = 0; from < args.T; from += kMarginThreads) {
    const int64_t t = from + own, here = min(args.T - from, static_cast<int64_t>(kMarginThreads));
    if (t < args.T) bins[own] = margin_bin_of(word_of(args.middle_T[t] - (args.s_TE[t * E + e] + bias)));
    __syncthreads();
    for (int64_t i = 0; i < here; ++i) count += bins[i] == own ? 1 : 0;
    __syncthreads();
  }
  if (own >= kMarginBins) return;
  double* to = args.margins + e * kMarginBins + own;
  *to = count + (args.overwrite ? 0.0 : *to);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kMarginThreads) quantile_bias_update(QuantileArgs args) {
  const int64_t E = args.E;
  const double share = static_cast<double>(args.k) / static_cast<double>(E), rate = args.hyper[3];
  for (int64_t e = threadIdx.x; e < E; e += kMarginThreads) {
    args.quantile_E[e] = margin_quantile(args.margins + e * kMarginBins, share);
  }
  __syncthreads();
  double sum = 0;  // in order, by every thread
  for (int64_t e = 0; e < E; ++e) sum += args.quantile_E[e];
  const double mean = sum / static_cast<double>(E);
  for (int64_t e = threadIdx.x; e < E; e += kMarginThreads) {
    args.bias_E[e] += static_cast<float>(rate * (args.quantile_E[e] - mean));
  }
}

}  // namespace heddle::kernels::cuda
