// Rows gathered, scattered and summed. See row_kernels.h. Sums have one order; nothing is added atomically.
#include "heddle/kernels/cuda/experts/leaves.h"
#include "heddle/kernels/cuda/experts/row_kernels.h"

namespace heddle::kernels::cuda {

namespace {

/// to[0 … 8) = from[0 … 8), the bits as they are.
template <class X>
HEDDLE_DEVICE void copy_pack(const X* from, X* to, int64_t left, bool wide) {
  if (wide && left >= kPack) {
    check_aligned(from);
    check_aligned(to);
    HEDDLE_UNROLL
    for (unsigned q = 0; q < sizeof(X) / 2; ++q)
      reinterpret_cast<Quad*>(to)[q] = reinterpret_cast<const Quad*>(from)[q];
    return;
  }
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) to[i] = from[i];
  }
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) gather_rows(GatherArgs args) {
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (256 / kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const bool wide = wide_rows<X>(args.from, args.H) && wide_rows<X>(args.to_RH, args.H);
  for (int64_t r = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / kWarp; r < args.R; r += warps) {
    const int64_t index = args.index_R[r], from = index < 0 ? index : index / args.each;
    const X* row = static_cast<const X*>(args.from) + from * args.H;
    X* to = static_cast<X*>(args.to_RH) + r * args.H;
    const bool there = from >= 0 && from < args.limit;
    float other[kPack];
    HEDDLE_UNROLL
    for (int c = 0; c < kPack; ++c) other[c] = from < 0 ? 0.0f : not_a_number();
    for (int64_t at = lane * kPack; at < args.H; at += kWarp * kPack) {
      if (there) {
        copy_pack(row + at, to + at, args.H - at, wide);
      } else {
        store_pack(to + at, args.H - at, wide, other);
      }
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) embedding_wgrad(EmbeddingGradArgs args) {
  HEDDLE_SHARED(int, earlier, 1);
  HEDDLE_SHARED(int32_t, found, 256);
  HEDDLE_SHARED(unsigned, votes, 256 / kWarp);
  const int64_t own = blockIdx.x, H = args.H;
  const int32_t id = args.ids_T[own];
  if (id < 0 || id >= args.V) return;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) earlier[0] = 0;
  __syncthreads();
  for (int64_t t = thread; t < own; t += 256) {
    if (args.ids_T[t] == id) earlier[0] = 1;  // whoever writes writes this
  }
  __syncthreads();
  if (earlier[0] != 0) return;
  const bool wide = wide_rows<X>(args.dx_TH, H) && wide_rows<float>(args.acc_VH, H);
  for (int64_t first = own; first < args.T; first += 256) {
    const bool mine = first + thread < args.T && args.ids_T[first + thread] == id;
    int all = 0;
    const int before = count_before(mine, votes, all);
    if (mine) found[before] = static_cast<int32_t>(first + thread);
    __syncthreads();
    if (all > 0) {
      for (int64_t at = thread * kPack; at < H; at += 256 * kPack) {
        float* to = args.acc_VH + id * H + at;
        float sum[kPack], v[kPack];
        load_pack(to, H - at, wide, sum);
        for (int i = 0; i < all; ++i) {
          load_pack(static_cast<const X*>(args.dx_TH) + found[i] * H + at, H - at, wide, v);
          HEDDLE_UNROLL
          for (int c = 0; c < kPack; ++c) sum[c] += v[c];
        }
        store_pack(to, H - at, wide, sum);
      }
    }
    __syncthreads();
  }
}

template <class X, int most>
HEDDLE_KERNEL void HEDDLE_BOUNDS(128) tree_sum(TreeSumArgs args) {
  HEDDLE_SHARED(Leaves<most>, leaves, 1);
  const int64_t t = blockIdx.x, H = args.H;
  const X* rows = static_cast<const X*>(args.rows);
  if (threadIdx.x == 0) {
    LeafList<most> list(leaves[0]);
    for (int64_t slot = t * args.k; slot < (t + 1) * args.k; ++slot) {
      if (args.row_of_Tk[slot] < 0) continue;
      list.add(args.experts_Tk[slot], rows + static_cast<int64_t>(args.row_of_Tk[slot]) * H,
               args.g_Tk == nullptr ? 1.0f : args.g_Tk[slot], false);
    }
    list.finish();
  }
  __syncthreads();
  const bool wide = wide_rows<X>(rows, H) && wide_rows<X>(args.to_TH, H) && wide_rows<X>(args.residual_TH, H);
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < H; at += 128 * kPack) {
    const int64_t left = H - at;
    float sum[kPack];
    add_leaves<X>(leaves[0], args.g_Tk != nullptr, at, left, wide, sum);
    if (args.residual_TH != nullptr) {
      float r[kPack];
      load_pack(static_cast<const X*>(args.residual_TH) + t * H + at, left, wide, r);
      HEDDLE_UNROLL
      for (int c = 0; c < kPack; ++c) sum[c] += r[c];
    }
    store_pack(static_cast<X*>(args.to_TH) + t * H + at, left, wide, sum);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(128) weigh_dgrad(WeighArgs args) {
  HEDDLE_SHARED(float, of_warps, 128 / kWarp);
  const int64_t slot = blockIdx.x, t = slot / args.k, H = args.H;
  const int64_t row = args.row_of_Tk == nullptr ? slot : args.row_of_Tk[slot];
  if (row < 0) {
    if (threadIdx.x == 0) args.dg[slot] = 0;
    return;
  }
  if (args.taken_R != nullptr && threadIdx.x == 0) args.taken_R[row] = 1;
  const float g = args.g[slot];
  const bool wide = wide_rows<X>(args.d_rows, H) && wide_rows<X>(args.rows, H) && wide_rows<X>(args.dy_RH, H);
  float dot = 0;
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < H; at += 128 * kPack) {
    float d[kPack], y[kPack];
    load_pack(static_cast<const X*>(args.d_rows) + t * H + at, H - at, wide, d);
    load_pack(static_cast<const X*>(args.rows) + row * H + at, H - at, wide, y);
    HEDDLE_UNROLL
    for (int c = 0; c < kPack; ++c) {
      dot += d[c] * y[c];
      d[c] = g * d[c];
    }
    store_pack(static_cast<X*>(args.dy_RH) + row * H + at, H - at, wide, d);
  }
  dot = block_sum(dot, of_warps);
  if (threadIdx.x == 0) args.dg[slot] = dot;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(256) unit_gates(UnitGateArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (at < args.count) args.g[at] = 1;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(128) zero_experts(ZeroExpertArgs args) {
  HEDDLE_SHARED(float, of_warps, 128 / kWarp);
  const int64_t t = blockIdx.x, H = args.H;
  const int32_t* experts = args.experts_Tk + t * args.k;
  float z = 0;
  for (int64_t j = 0; j < args.k; ++j) z += experts[j] >= args.first ? args.g_Tk[t * args.k + j] : 0.0f;
  const bool gradient = args.dy_TH != nullptr;
  const X* x = static_cast<const X*>(args.x_TH) + t * H;
  const X* scaled = gradient ? static_cast<const X*>(args.dy_TH) + t * H : x;
  X* to = static_cast<X*>(args.to_TH) + t * H;
  const bool wide = wide_rows<X>(args.x_TH, H) && wide_rows<X>(args.dy_TH, H) && wide_rows<X>(args.to_TH, H);
  float dot = 0;
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < H; at += 128 * kPack) {
    float s[kPack], v[kPack];
    load_pack(scaled + at, H - at, wide, s);
    load_pack(x + at, H - at, wide, v);
    HEDDLE_UNROLL
    for (int c = 0; c < kPack; ++c) {
      dot += s[c] * v[c];
      s[c] = z * s[c];
    }
    store_pack(to + at, H - at, wide, s);
  }
  if (!gradient) return;
  dot = block_sum(dot, of_warps);
  for (int64_t j = threadIdx.x; j < args.k; j += 128)
    args.dg_Tk[t * args.k + j] = experts[j] >= args.first ? dot : 0.0f;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) clear_others(ClearArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kClearedRows, end = min(args.R, first + kClearedRows);
  const bool wide = wide_rows<X>(args.rows_RH, args.H);
  const float zeros[kPack] = {};
  for (int64_t r = first; r < end; ++r) {
    if (args.taken_R[r] != 0) continue;
    X* row = static_cast<X*>(args.rows_RH) + r * args.H;
    for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < args.H; at += 256 * kPack) {
      store_pack(row + at, args.H - at, wide, zeros);
    }
  }
}

#define ROWS(X)                                                           \
  template HEDDLE_KERNEL void gather_rows<X>(GatherArgs args);            \
  template HEDDLE_KERNEL void embedding_wgrad<X>(EmbeddingGradArgs args); \
  template HEDDLE_KERNEL void tree_sum<X, kFewLeaves>(TreeSumArgs args);  \
  template HEDDLE_KERNEL void tree_sum<X, kMostLeaves>(TreeSumArgs args); \
  template HEDDLE_KERNEL void weigh_dgrad<X>(WeighArgs args);             \
  template HEDDLE_KERNEL void zero_experts<X>(ZeroExpertArgs args);       \
  template HEDDLE_KERNEL void clear_others<X>(ClearArgs args);
ROWS(float)
ROWS(Bf16)
#undef ROWS

}  // namespace heddle::kernels::cuda
