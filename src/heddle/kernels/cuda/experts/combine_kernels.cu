// Sums of what experts made of a token, on its way back to where it came from. See combine_kernels.h.
#include "heddle/kernels/cuda/experts/combine_kernels.h"
#include "heddle/kernels/cuda/experts/leaves.h"

namespace heddle::kernels::cuda {

namespace {

/// Row number `row` of H numbers.
template <class T>
HEDDLE_DEVICE const T* row_of(const void* rows, int64_t row, int64_t H) {
  return static_cast<const T*>(rows) + row * H;
}

/// False where a slot's expert is without computation: no rank holds it.
HEDDLE_DEVICE bool has_row(const device::TokenRoutes& r, int64_t slot) {
  return r.experts_Qk[slot] / r.P * r.slices < r.G;
}

/// The entry at a place of list b: sums first, then rows.
struct Placed {
  HEDDLE_DEVICE explicit Placed(int32_t code) : is_sum(code >= 0), row(code < 0 ? ~code : code) {}
  HEDDLE_DEVICE Placed(const int32_t* many, const int32_t* alone, int64_t b, int32_t place) {
    const int32_t count = many[b + 1] - many[b];
    is_sum = place < count;
    row = is_sum ? many[b] + place : alone[b] + place - count;
  }
  bool is_sum;
  int64_t row;
};

/// The sum of the block's leaves, to a place among sums or among rows.
template <class X, int most>
HEDDLE_DEVICE void hand_on(const Leaves<most>& leaves, bool weighed, const Placed& to, void* sums, void* rows,
                           int64_t H, bool wide) {
  const bool wide_out = to.is_sum ? wide_rows<float>(sums, H) : wide_rows<X>(rows, H);
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < H; at += kSumThreads * kPack) {
    float sum[kPack];
    add_leaves<X>(leaves, weighed && to.is_sum, at, H - at, wide, sum);
    if (to.is_sum) {
      store_pack(static_cast<float*>(sums) + to.row * H + at, H - at, wide_out, sum);
    } else {
      store_pack(static_cast<X*>(rows) + to.row * H + at, H - at, wide_out, sum);
    }
  }
}

}  // namespace

template <class X, int most>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSumThreads) sum_tokens(device::SumTokens args) {
  HEDDLE_SHARED(Leaves<most>, leaves, 1);
  const int64_t u = blockIdx.x, H = args.H;
  if (threadIdx.x == 0) {
    LeafList<most> list(leaves[0]);
    for (int64_t leaf = u * args.L; leaf < (u + 1) * args.L && args.leaf_UL[leaf] >= 0; ++leaf) {
      const int64_t row = args.leaf_UL[leaf];
      list.add(args.key_UL[leaf], row_of<X>(args.rows_SH, row, H),
               args.g_S == nullptr ? 1.0f : static_cast<const float*>(args.g_S)[row], false);
    }
    list.finish();
  }
  __syncthreads();
  hand_on<X>(leaves[0], args.g_S != nullptr, Placed(args.to_U[u]), args.sums, args.alone, H,
             wide_rows<X>(args.rows_SH, H));
}

template <class X, int most>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSumThreads) sum_node(device::SumNode args) {
  HEDDLE_SHARED(Leaves<most>, leaves, 1);
  const device::TokenRoutes& r = args.routes;
  const int64_t q = blockIdx.x, H = args.H;
  int64_t i = 0;
  while (r.first_I[i + 1] <= q) ++i;
  const int32_t found = args.to_place_Q[q];
  if (found < 0) return;
  if (threadIdx.x == 0) {
    LeafList<most> list(leaves[0]);
    for (int64_t slot = q * r.k; slot < (q + 1) * r.k; ++slot) {
      if (!has_row(r, slot)) continue;
      for (int64_t s = 0; s < r.slices; ++s) {
        const int64_t rank = r.experts_Qk[slot] / r.P * r.slices + s;
        if (r.node_of_G[rank] != args.node) continue;
        int32_t d = 0;
        while (r.to_D[d] != rank) ++d;
        if (list.has(d)) continue;
        const Placed from(args.many_DI, args.alone_DI, d * r.I + i, args.place_DQ[d * r.Q + q]);
        list.add(d,
                 from.is_sum ? static_cast<const void*>(row_of<float>(args.sums, from.row, H))
                             : row_of<X>(args.alone, from.row, H),
                 1.0f, from.is_sum);
      }
    }
    list.finish();
  }
  __syncthreads();
  hand_on<X>(leaves[0], false, Placed(args.to_many_I, args.to_alone_I, i, found), args.to_sums, args.to_alone, H,
             wide_rows<float>(args.sums, H) && wide_rows<X>(args.alone, H));
}

template <class X, int most>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kSumThreads) combine_sums(device::CombineSums args) {
  HEDDLE_SHARED(Leaves<most>, leaves, 1);
  const device::TokenRoutes& r = args.routes;
  const int64_t t = blockIdx.x, H = args.H;
  if (threadIdx.x == 0) {
    LeafList<most> list(leaves[0]);
    for (int64_t slot = t * r.k; slot < (t + 1) * r.k; ++slot) {
      const int64_t expert = r.experts_Qk[slot];
      if (!has_row(r, slot)) continue;
      const float gate = args.g_Tk == nullptr ? 1.0f : static_cast<const float*>(args.g_Tk)[slot];
      for (int64_t s = 0; s < r.slices; ++s) {
        const int64_t rank = expert / r.P * r.slices + s;
        if (args.row_of_Tks != nullptr) {
          const auto key = static_cast<int32_t>(args.key_of_G[rank] * args.keys_each + expert % r.P);
          list.add(key, row_of<X>(args.rows, args.row_of_Tks[slot * r.slices + s], H), gate, false);
          continue;
        }
        const int64_t d = r.by_node ? r.node_of_G[rank] : rank;
        const int32_t key = r.by_node ? static_cast<int32_t>(d) : args.key_of_G[rank];
        if (list.has(key)) continue;
        const Placed from(args.many_DI, args.alone_DI, d, args.place_DQ[d * r.Q + t]);
        list.add(key,
                 from.is_sum ? static_cast<const void*>(row_of<float>(args.sums, from.row, H))
                             : row_of<X>(args.rows, from.row, H),
                 gate, from.is_sum);
      }
    }
    list.finish();
  }
  __syncthreads();
  const bool wide = wide_rows<X>(args.rows, H) && wide_rows<float>(args.sums, H) && wide_rows<X>(args.to_TH, H) &&
                    wide_rows<X>(args.residual_TH, H);
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < H; at += kSumThreads * kPack) {
    const int64_t left = H - at;
    float sum[kPack];
    add_leaves<X>(leaves[0], args.g_Tk != nullptr, at, left, wide, sum);
    if (args.residual_TH != nullptr) {
      float residual[kPack];
      load_pack(static_cast<const X*>(args.residual_TH) + t * H + at, left, wide, residual);
      HEDDLE_UNROLL
      for (int c = 0; c < kPack; ++c) sum[c] += residual[c];
    }
    store_pack(static_cast<X*>(args.to_TH) + t * H + at, left, wide, sum);
  }
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) slot_numbers(device::SlotNumbers args) {
  const device::TokenRoutes& r = args.routes;
  const auto* from = static_cast<const float*>(args.from);
  auto* to = static_cast<float*>(args.to);
  const int64_t slots = r.Q * r.k, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t slot = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; slot < slots; slot += step) {
    float sum = 0;
    const bool there = has_row(r, slot);
    for (int64_t s = 0; s < r.slices; ++s) {
      if (!there) {
        if (args.spread) to[slot * r.slices + s] = 0.0f;
        continue;
      }
      const int64_t at = slot * r.slices + s, node = r.node_of_G[r.experts_Qk[slot] / r.P * r.slices + s];
      if (args.spread) {
        to[at] = node == args.node ? from[args.row_of_Qks[at]] : 0.0f;
      } else {
        sum += from[args.row_of_Qks == nullptr ? node * slots * r.slices + at : args.row_of_Qks[at]];
      }
    }
    if (!args.spread) to[slot] = sum;
  }
}

#define SUMS(X, most)                                                      \
  template HEDDLE_KERNEL void sum_tokens<X, most>(device::SumTokens args); \
  template HEDDLE_KERNEL void sum_node<X, most>(device::SumNode args);     \
  template HEDDLE_KERNEL void combine_sums<X, most>(device::CombineSums args);
SUMS(float, kFewLeaves)
SUMS(float, kMostLeaves)
SUMS(Bf16, kFewLeaves)
SUMS(Bf16, kMostLeaves)
#undef SUMS

}  // namespace heddle::kernels::cuda
