// The router and its balancing losses: a warp a token, values of a token in shared memory. See router_kernels.h.
// Source: DeepSeek-V3 report, arXiv 2412.19437, section 2.1.2 and equations 17–20.
#include "heddle/kernels/cuda/router/router_kernels.h"
#include "heddle/kernels/cuda/router/top.h"

namespace heddle::kernels::cuda {

namespace {

constexpr double kLeastSum = 1e-20;
constexpr int kThreads = kRouterWarps * kWarp;

/// Marks as taken what lies outside of the top groups.
HEDDLE_DEVICE void close_groups(const float* biased, unsigned char* taken, float* scores, int E, int groups,
                                int top_groups, int score_top) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, size = E / groups;
  for (int g = lane; g < groups; g += kWarp) {
    const int first = g * size;
    float sum = 0;
    for (int n = 0; n < min(score_top, size); ++n) {
      int at = -1;
      for (int e = first; e < first + size; ++e) {
        if (taken[e] == 0 && better(biased[e], e, at < 0 ? 0.0f : biased[at], at)) at = e;
      }
      taken[at] = 1;
      sum += biased[at];
    }
    scores[g] = sum;
  }
  __syncwarp();
  for (int e = lane; e < E; e += kWarp) taken[e] = 0;
  __syncwarp();
  for (int n = 0; n < top_groups; ++n) {  // a group is marked at its own index first
    const int g = best_open(scores, taken, groups);
    __syncwarp();
    if (lane == 0 && g >= 0) taken[g] = 1;
    __syncwarp();
  }
  Lanes open[kMostExperts / kWarp];  // one bit a group; every lane reads before any writes
  const int words = (groups + kWarp - 1) / kWarp;
  for (int w = 0; w < words; ++w) {
    const int g = w * kWarp + lane;
    open[w] = vote(g < groups && taken[g] != 0);
  }
  __syncwarp();
  for (int e = lane; e < E; e += kWarp) {
    const int g = e / size;
    taken[e] = (open[g / kWarp] >> (g % kWarp) & 1) != 0 ? 0 : 1;
  }
  __syncwarp();
}

HEDDLE_DEVICE float root_softplus(float x) { return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))); }
/// Its slope, of itself: (1 − e^−s²) ÷ 2s.
HEDDLE_DEVICE float root_softplus_slope(float s) { return s > 0 ? -expm1f(-s * s) / (2 * s) : 0.0f; }

HEDDLE_DEVICE float row_max(const float* x, int64_t E) {
  float most = x[0];
  for (int64_t e = threadIdx.x % kWarp; e < E; e += kWarp) most = fmaxf(most, x[e]);
  return warp_max(most);
}

}  // namespace

HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) route(RouteArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / kWarp, E = args.E;
  if (t >= args.T) return;
  const WarpMemory mine = memory_of_warp(shared, E);
  float *s = mine.a, *biased = mine.b;
  if (args.logits_TE != nullptr) {
    const float* x = args.logits_TE + t * E;
    if (args.scores == Scores::sigmoid) {
      for (int64_t e = lane; e < E; e += kWarp) s[e] = 1.0f / (1.0f + expf(-x[e]));
    } else if (args.scores == Scores::root_softplus) {
      for (int64_t e = lane; e < E; e += kWarp) s[e] = root_softplus(x[e]);
    } else {
      const float most = row_max(x, E);
      float sum = 0;
      for (int64_t e = lane; e < E; e += kWarp) sum += s[e] = expf(x[e] - most);
      sum = warp_sum(sum);
      for (int64_t e = lane; e < E; e += kWarp) s[e] /= sum;
    }
  } else {
    for (int64_t e = lane; e < E; e += kWarp) s[e] = args.s_in_TE[t * E + e];
  }
  for (int64_t e = lane; e < E; e += kWarp) {
    if (args.s_TE != nullptr) args.s_TE[t * E + e] = s[e];
    biased[e] = args.bias_E != nullptr ? s[e] + args.bias_E[e] : s[e];
    mine.taken[e] = 0;
  }
  __syncwarp();
  const int k = args.k;
  int32_t own = -1;  // lane j: the expert of slot j
  if (args.experts_Tk != nullptr) {
    if (args.groups > 1) {
      // The scores of groups stand where s is; what they overwrote is read again.
      close_groups(biased, mine.taken, s, static_cast<int>(E), args.groups, args.top_groups, args.group_score_top);
      for (int64_t e = lane; e < E; e += kWarp) {
        if (e < args.groups) s[e] = args.s_TE != nullptr ? args.s_TE[t * E + e] : args.s_in_TE[t * E + e];
      }
      __syncwarp();
    }
    for (int j = 0; j < k; ++j) {
      const int e = best_open(biased, mine.taken, static_cast<int>(E));
      if (lane == j) own = e;
      __syncwarp();
      if (lane == 0 && e >= 0) mine.taken[e] = 1;
      __syncwarp();
    }
    int rank = 0;  // in increasing id
    for (int j = 0; j < k; ++j) {
      const int other = __shfl_sync(kFullWarp, own, j);
      if (other < own) ++rank;
    }
    int32_t sorted = -1;
    for (int j = 0; j < k; ++j) {
      const int to = __shfl_sync(kFullWarp, rank, j), e = __shfl_sync(kFullWarp, own, j);
      if (to == lane) sorted = e;
    }
    own = sorted;
    if (lane < k) args.experts_Tk[t * k + lane] = own;
  } else if (args.chosen_Tk != nullptr && lane < k) {
    own = args.chosen_Tk[t * k + lane];
  }
  if (args.g_Tk == nullptr) return;
  const float chosen = lane < k ? s[own] : 0.0f;
  float sum = 0;
  for (int j = 0; j < k; ++j) sum += __shfl_sync(kFullWarp, chosen, j);
  sum += static_cast<float>(kLeastSum);
  if (lane < k) args.g_Tk[t * k + lane] = (args.normalize ? chosen / sum : chosen) * args.scale;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) route_dgrad(RouteGradArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, k = args.k;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / kWarp, E = args.E;
  if (t >= args.T) return;
  float* ds = memory_of_warp(shared, E).a;
  const float* s = args.s_TE + t * E;
  for (int64_t e = lane; e < E; e += kWarp) ds[e] = 0;
  __syncwarp();
  if (args.dg_Tk != nullptr) {
    const int32_t own = lane < k ? args.experts_Tk[t * k + lane] : 0;
    const float chosen = lane < k ? s[own] : 0.0f, dg = lane < k ? args.dg_Tk[t * k + lane] : 0.0f;
    float sum = 0, dot = 0;
    for (int j = 0; j < k; ++j) {
      const float s_j = __shfl_sync(kFullWarp, chosen, j), dg_j = __shfl_sync(kFullWarp, dg, j);
      sum += s_j;
      dot += dg_j * s_j;
    }
    sum += static_cast<float>(kLeastSum);
    if (lane < k) ds[own] += args.scale * (args.normalize ? (dg - dot / sum) / sum : dg);
    __syncwarp();
  }
  float along = 0;
  for (int64_t e = lane; e < E; e += kWarp) {
    if (args.ds_TE != nullptr) ds[e] += args.ds_TE[t * E + e];
    along += ds[e] * s[e];
  }
  along = warp_sum(along);
  for (int64_t e = lane; e < E; e += kWarp) {
    args.d_TE[t * E + e] = args.scores == Scores::none            ? ds[e]
                           : args.scores == Scores::sigmoid       ? ds[e] * s[e] * (1.0f - s[e])
                           : args.scores == Scores::root_softplus ? ds[e] * root_softplus_slope(s[e])
                                                                  : s[e] * (ds[e] - along);
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) mixer_gate(MixerArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / kWarp, E = args.E;
  if (t >= args.T) return;
  const float* x = args.logits_TE + t * E;
  const int32_t a = args.experts_T2[2 * t], b = args.experts_T2[2 * t + 1];
  // The one with the larger logit is first, of equal ones the lower.
  const bool swapped = a < b ? x[b] > x[a] : x[a] <= x[b];
  for (int turn = 0; turn < 2; ++turn) {
    const int j = swapped ? 1 - turn : turn;
    const int32_t chosen = j == 0 ? a : b, without = turn == 0 ? -1 : j == 0 ? b : a;
    const float most = x[chosen];
    const auto power = [&](int64_t e) {
      const bool far = (most - x[e]) / fmaxf(fabsf(x[e]), most) > args.closeness;
      return e == without || far ? 0.0f : expf(x[e] - most);
    };
    float sum = 0;
    for (int64_t e = lane; e < E; e += kWarp) sum += power(e);
    sum = warp_sum(sum);
    if (args.dg_T2 == nullptr) {
      if (lane == 0) args.to[2 * t + j] = 1.0f / sum;
      continue;
    }
    const float d = args.dg_T2[2 * t + j] / sum;
    for (int64_t e = lane; e < E; e += kWarp) {
      const float slope = (e == chosen ? d : 0.0f) - d * (power(e) / sum);
      args.to[t * E + e] = turn == 0 ? slope : args.to[t * E + e] + slope;
    }
  }
}

namespace {

/// The ids of rows first … last in shared memory, for all threads of the block.
HEDDLE_DEVICE void share_ids(const int32_t* ids, int64_t first, int64_t last, int32_t* shared) {
  for (int64_t i = first + threadIdx.x; i < last; i += kSortThreads) shared[i - first] = ids[i];
  __syncthreads();
}

}  // namespace

HEDDLE_KERNEL void HEDDLE_BOUNDS(kSortThreads) count_rows(SortRowsArgs args) {
  HEDDLE_SHARED(int32_t, ids, kSortRows);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSortRows, last = min(args.R, first + kSortRows);
  share_ids(args.experts_R, first, last, ids);
  const int rows = static_cast<int>(last - first);
  for (int64_t e = threadIdx.x; e < args.E; e += kSortThreads) {
    int32_t count = 0;
    for (int i = 0; i < rows; ++i) count += ids[i] == e ? 1 : 0;
    args.first_PE[static_cast<int64_t>(blockIdx.x) * args.E + e] = count;
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kSortThreads) begin_rows(SortRowsArgs args) {
  HEDDLE_SHARED(int32_t, before, kSortThreads);
  // A thread has neighbouring experts: their rows, and those of all experts before them.
  const int64_t E = args.E, each = (E + kSortThreads - 1) / kSortThreads;
  const int64_t from = min(E, threadIdx.x * each), to = min(E, from + each);
  int32_t rows = 0;
  for (int64_t p = 0; p < args.P; ++p) {
    for (int64_t e = from; e < to; ++e) rows += args.first_PE[p * E + e];
  }
  before[threadIdx.x] = rows;
  __syncthreads();
  int32_t sum = rows;
  for (unsigned step = 1; step < kSortThreads; step *= 2) {
    const int32_t left = threadIdx.x >= step ? before[threadIdx.x - step] : 0;
    __syncthreads();
    before[threadIdx.x] = sum += left;
    __syncthreads();
  }
  int32_t next = sum - rows;
  for (int64_t e = from; e < to; ++e) {
    args.offsets[e] = next;
    for (int64_t p = 0; p < args.P; ++p) {
      int32_t* first = args.first_PE + p * E + e;
      const int32_t count = *first;
      *first = next;
      next += count;
    }
  }
  if (threadIdx.x == kSortThreads - 1) args.offsets[E] = sum;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kSortThreads) sort_rows(SortRowsArgs args) {
  HEDDLE_SHARED(int32_t, ids, kSortRows);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSortRows, last = min(args.R, first + kSortRows);
  share_ids(args.experts_R, first, last, ids);
  const int rows = static_cast<int>(last - first);
  for (int64_t e = threadIdx.x; e < args.E; e += kSortThreads) {
    int32_t next = args.first_PE[static_cast<int64_t>(blockIdx.x) * args.E + e];
    for (int i = 0; i < rows; ++i) {
      if (ids[i] != e) continue;
      args.row_of_R[first + i] = next;
      if (args.token_of_R != nullptr) args.token_of_R[next] = static_cast<int32_t>((first + i) / args.k);
      ++next;
    }
  }
}

HEDDLE_KERNEL void choose_by_id(ChooseByIdArgs args) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= args.T) return;
  const int32_t id = args.ids_T[t];
  const float* row = args.table_Vk + (id < 0 ? 0 : id) * args.k;
  int32_t* experts = args.experts_Tk + t * args.k;
  for (int64_t j = 0; j < args.k; ++j) {
    const auto expert = static_cast<int32_t>(row[j]);
    int64_t at = j;
    for (; at > 0 && experts[at - 1] > expert; --at) experts[at] = experts[at - 1];
    experts[at] = expert;
  }
}

HEDDLE_KERNEL void count_load(LoadArgs args) {
  for (int64_t e = threadIdx.x; e < args.E; e += blockDim.x) {
    const double rows = args.offsets[e + 1] - args.offsets[e];
    args.load_E[e] = args.overwrite ? rows : args.load_E[e] + rows;
  }
}

HEDDLE_KERNEL void router_bias_update(BiasUpdateArgs args) {
  double sum = 0;  // whole numbers: exact
  for (int64_t e = 0; e < args.E; ++e) sum += args.load_E[e];
  const double mean = sum / static_cast<double>(args.E);
  const auto rate = static_cast<float>(args.hyper[3]);
  if (args.by_share > 0) {
    for (int64_t e = threadIdx.x; e < args.by_share && mean > 0; e += blockDim.x)
      args.bias_E[e] += rate * static_cast<float>(1 - args.load_E[e] / mean);
    return;
  }
  for (int64_t e = threadIdx.x; e < args.E; e += blockDim.x) {
    if (args.load_E[e] < mean) args.bias_E[e] += rate;
    if (args.load_E[e] > mean) args.bias_E[e] -= rate;
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) balance_tokens(BalanceArgs args) {
  HEDDLE_DYNAMIC_SHARED(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / kWarp, E = args.E;
  if (t >= args.T) return;
  unsigned char* taken = memory_of_warp(shared, E).taken;
  const float* s = args.s_TE + t * E;
  double sum = 0;
  for (int64_t e = lane; e < E; e += kWarp) {
    taken[e] = 0;
    sum += s[e];
  }
  sum = warp_sum(sum);
  if (lane == 0) args.Z_T[t] = sum + kLeastSum;
  if (args.load_BE != nullptr) return;
  __syncwarp();
  for (int j = 0; j < args.k; ++j) {
    const int e = best_open(s, taken, static_cast<int>(E));
    __syncwarp();
    if (lane == 0) {
      if (e >= 0) taken[e] = 1;
      args.chosen_Tk[t * args.k + j] = e;
    }
    __syncwarp();
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kSortThreads) balance_parts(BalanceArgs args) {
  HEDDLE_SHARED(int32_t, ids, kBalanceTokens * kMostChosen);
  const int64_t each = (args.S + kBalanceTokens - 1) / kBalanceTokens, E = args.E;
  const int64_t b = blockIdx.x / each, part = blockIdx.x % each;
  const int64_t first = b * args.S + part * kBalanceTokens;
  const int64_t last = min((b + 1) * args.S, first + kBalanceTokens);
  const bool counts = args.load_BE == nullptr;
  if (counts) share_ids(args.chosen_Tk, first * args.k, last * args.k, ids);
  const int chosen = static_cast<int>((last - first) * args.k);
  for (int64_t e = threadIdx.x; e < E; e += kSortThreads) {
    const int64_t at = static_cast<int64_t>(blockIdx.x) * E + e;
    if (counts) {
      int32_t count = 0;
      for (int i = 0; i < chosen; ++i) count += ids[i] == e ? 1 : 0;
      args.count_PE[at] = count;
    }
    if (args.loss_B == nullptr) continue;
    double share = 0;
    for (int64_t t = first; t < last; ++t) share += static_cast<double>(args.s_TE[t * E + e]) / args.Z_T[t];
    args.share_PE[at] = share;
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kSortThreads) balance_sequences(BalanceArgs args) {
  HEDDLE_SHARED(double, of_warps, kSortThreads / kWarp);
  const int64_t b = blockIdx.x, E = args.E, each = (args.S + kBalanceTokens - 1) / kBalanceTokens;
  double dot = 0;
  for (int64_t e = threadIdx.x; e < E; e += kSortThreads) {
    double count = args.load_BE != nullptr ? args.load_BE[b * E + e] : 0, share = 0;
    for (int64_t part = b * each; part < (b + 1) * each; ++part) {
      if (args.load_BE == nullptr) count += args.count_PE[part * E + e];
      if (args.loss_B != nullptr) share += args.share_PE[part * E + e];
    }
    args.count_BE[b * E + e] = count;
    const double f = count * (static_cast<double>(E) / static_cast<double>(args.k * args.whole));
    dot += f * (share / static_cast<double>(args.whole));
  }
  if (args.loss_B == nullptr) return;
  dot = block_sum(dot, of_warps);
  if (threadIdx.x == 0) args.loss_B[b] = args.alpha * dot;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) balance_dgrad(BalanceArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / kWarp, E = args.E;
  if (t >= args.T) return;
  const double* count_E = args.count_BE + t / args.S * E;
  const double share = static_cast<double>(E) / static_cast<double>(args.k * args.whole), Z = args.Z_T[t];
  const double scale = static_cast<double>(args.scales[args.scale_index]) * args.alpha;
  double mean = 0;
  for (int64_t e = lane; e < E; e += kWarp) mean += count_E[e] * share * static_cast<double>(args.s_TE[t * E + e]);
  mean = warp_sum(mean) / Z;
  for (int64_t e = lane; e < E; e += kWarp) {
    args.ds_TE[t * E + e] =
        static_cast<float>(scale / (static_cast<double>(args.whole) * Z) * (count_E[e] * share - mean));
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kThreads) z_loss(ZLossArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kRouterWarps + threadIdx.x / kWarp, E = args.E;
  if (t >= args.T) return;
  const float* x = args.logits_TE + t * E;
  const float most = row_max(x, E);
  float sum = 0;
  for (int64_t e = lane; e < E; e += kWarp) sum += expf(x[e] - most);
  const float lse = most + logf(warp_sum(sum));
  if (args.loss_T != nullptr) {
    if (lane == 0) args.loss_T[t] = args.weight * static_cast<double>(lse) * static_cast<double>(lse);
    return;
  }
  const float factor = args.scales[args.scale_index] * static_cast<float>(2 * args.weight);
  for (int64_t e = lane; e < E; e += kWarp) args.dlogits_TE[t * E + e] = factor * lse * expf(x[e] - lse);
}

}  // namespace heddle::kernels::cuda
