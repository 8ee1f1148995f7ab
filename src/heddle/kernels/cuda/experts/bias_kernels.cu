// See bias_kernels.h. Sums have one order; nothing is added atomically.
#include "heddle/kernels/cuda/experts/bias_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE int64_t first_column() {
  return (static_cast<int64_t>(blockIdx.y) * kBiasThreads + threadIdx.x) * kPack;
}

HEDDLE_DEVICE void clear(float (&v)[kPack]) {
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) v[i] = 0.0f;
}

/// v += bias of row r's expert, of whom the first `own` are this rank's. `expert` goes on from the row before.
HEDDLE_DEVICE void add_bias(const float* bias_EN, const float* copies_CN, int64_t own, int64_t experts,
                            const int32_t* offsets, int64_t N, int64_t r, int64_t column, int64_t left,
                            int64_t& expert, float (&v)[kPack]) {
  if (bias_EN == nullptr) return;
  while (expert + 1 < experts && offsets[expert + 1] <= r) ++expert;
  const float* bias = (expert < own ? bias_EN + expert * N : copies_CN + (expert - own) * N) + column;
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) v[i] += i < left ? bias[i] : 0.0f;
}

/// Some of the 2F columns of row r of u, and their bias.
template <class X>
HEDDLE_DEVICE void load_biased(const ClampedArgs& args, int64_t r, int64_t column, int64_t left, bool wide,
                               int64_t& expert, float (&v)[kPack]) {
  load_pack(static_cast<const X*>(args.u) + r * 2 * args.F + column, left, wide, v);
  add_bias(args.bias_E2F, args.copies_C2F, args.own, args.experts, args.offsets, 2 * args.F, r, column, left,
           expert, v);
}

HEDDLE_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kBiasThreads) add_expert_bias(ExpertBiasArgs args) {
  const int64_t column = first_column(), left = args.N - column;
  if (left <= 0) return;
  const bool wide = wide_rows<X>(args.x_RN, args.N) && wide_rows<X>(args.y_RN, args.N);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBiasRows, last = min(args.R, first + kBiasRows);
  int64_t expert = 0;
  for (int64_t r = first; r < last; ++r) {
    float v[kPack];
    load_pack(static_cast<const X*>(args.x_RN) + r * args.N + column, left, wide, v);
    add_bias(args.bias_EN, args.copies_CN, args.own, args.experts, args.offsets, args.N, r, column, left, expert,
             v);
    store_pack(static_cast<X*>(args.y_RN) + r * args.N + column, left, wide, v);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kBiasThreads) sum_expert_rows(ExpertBiasSumArgs args) {
  const int64_t column = first_column(), left = args.N - column;
  if (left <= 0) return;
  const bool wide = wide_rows<X>(args.dy_RN, args.N);
  float sum[kPack], v[kPack];
  clear(sum);
  for (int64_t r = args.first[blockIdx.x]; r < args.first[blockIdx.x + 1]; ++r) {
    load_pack(static_cast<const X*>(args.dy_RN) + r * args.N + column, left, wide, v);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) sum[i] += v[i];
  }
  float* to = args.sums + static_cast<int64_t>(blockIdx.x) * args.N + column;
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) to[i] = args.add ? to[i] + sum[i] : sum[i];
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kBiasThreads) gated_bias(GatedBiasArgs args) {
  const int64_t t = blockIdx.x, H = args.H;
  const bool wide = wide_rows<X>(args.y_TH, H), wide_bias = wide_rows<float>(args.bias_EH, H);
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < H; at += kBiasThreads * kPack) {
    float sum[kPack], b[kPack];
    clear(sum);
    for (int64_t slot = t * args.k; slot < (t + 1) * args.k; ++slot) {
      load_pack(args.bias_EH + args.experts_Tk[slot] * H + at, H - at, wide_bias, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] += args.g_Tk[slot] * b[i];
    }
    store_pack(static_cast<X*>(args.y_TH) + t * H + at, H - at, wide, sum);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kBiasThreads) gated_bias_dots(GatedBiasGradArgs args) {
  HEDDLE_SHARED(float, of_warps, kBiasThreads / kWarp);
  const int64_t slot = blockIdx.x, t = slot / args.k, H = args.H;
  const bool wide = wide_rows<X>(args.dy_TH, H), wide_bias = wide_rows<float>(args.bias_EH, H);
  float dot = 0;
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kPack; at < H; at += kBiasThreads * kPack) {
    float d[kPack], b[kPack];
    load_pack(static_cast<const X*>(args.dy_TH) + t * H + at, H - at, wide, d);
    load_pack(args.bias_EH + args.experts_Tk[slot] * H + at, H - at, wide_bias, b);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) dot += d[i] * b[i];
  }
  dot = block_sum(dot, of_warps);
  if (threadIdx.x == 0) args.to[slot] = dot;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kBiasThreads) gated_bias_sums(GatedBiasGradArgs args) {
  const int64_t column = first_column(), left = args.H - column, expert = blockIdx.x;
  if (left <= 0) return;
  const bool wide = wide_rows<X>(args.dy_TH, args.H);
  float sum[kPack], d[kPack];
  clear(sum);
  for (int64_t t = 0; t < args.T; ++t) {
    for (int64_t slot = t * args.k; slot < (t + 1) * args.k; ++slot) {
      if (args.experts_Tk[slot] != expert) continue;
      load_pack(static_cast<const X*>(args.dy_TH) + t * args.H + column, left, wide, d);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) sum[i] += args.g_Tk[slot] * d[i];
    }
  }
  float* to = args.to + expert * args.H + column;
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) to[i] = args.add ? to[i] + sum[i] : sum[i];
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kBiasThreads) clamped_swiglu(ClampedArgs args) {
  const int64_t F = args.F, column = first_column(), left = F - column;
  if (left <= 0) return;
  const bool wide = wide_rows<X>(args.u, F) && wide_rows<X>(args.to, F);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBiasRows, last = min(args.R, first + kBiasRows);
  int64_t expert = 0;
  for (int64_t r = first; r < last; ++r) {
    float gate[kPack], up[kPack], a[kPack];
    load_biased<X>(args, r, column, left, wide, expert, gate);
    load_biased<X>(args, r, F + column, left, wide, expert, up);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const float g = gate[i] > args.limit ? args.limit : gate[i];
      const float w = up[i] > args.limit ? args.limit : up[i] < -args.limit ? -args.limit : up[i];
      a[i] = g * sigmoid(args.alpha * g) * (w + 1.0f);
    }
    store_pack(static_cast<X*>(args.to) + r * F + column, left, wide, a);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kBiasThreads) clamped_swiglu_dgrad(ClampedArgs args) {
  const int64_t F = args.F, column = first_column(), left = F - column;
  if (left <= 0) return;
  const bool wide = wide_rows<X>(args.u, F) && wide_rows<X>(args.to, F) && wide_rows<X>(args.da_RF, F);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBiasRows, last = min(args.R, first + kBiasRows);
  int64_t expert = 0;
  for (int64_t r = first; r < last; ++r) {
    float gate[kPack], up[kPack], da[kPack];
    load_biased<X>(args, r, column, left, wide, expert, gate);
    load_biased<X>(args, r, F + column, left, wide, expert, up);
    load_pack(static_cast<const X*>(args.da_RF) + r * F + column, left, wide, da);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const bool is_gate = !(gate[i] > args.limit), is_up = !(up[i] > args.limit || up[i] < -args.limit);
      const float g = is_gate ? gate[i] : args.limit;
      const float w = is_up ? up[i] : up[i] > 0 ? args.limit : -args.limit;
      const float s = sigmoid(args.alpha * g);
      gate[i] = is_gate ? da[i] * (w + 1.0f) * s * (1.0f + args.alpha * g * (1.0f - s)) : 0.0f;
      up[i] = is_up ? da[i] * g * s : 0.0f;
    }
    X* du = static_cast<X*>(args.to) + r * 2 * F + column;
    store_pack(du, left, wide, gate);
    store_pack(du + F, left, wide, up);
  }
}

#define BIASES(X)                                                         \
  template HEDDLE_KERNEL void add_expert_bias<X>(ExpertBiasArgs args);    \
  template HEDDLE_KERNEL void sum_expert_rows<X>(ExpertBiasSumArgs args); \
  template HEDDLE_KERNEL void gated_bias<X>(GatedBiasArgs args);          \
  template HEDDLE_KERNEL void gated_bias_dots<X>(GatedBiasGradArgs args); \
  template HEDDLE_KERNEL void gated_bias_sums<X>(GatedBiasGradArgs args); \
  template HEDDLE_KERNEL void clamped_swiglu<X>(ClampedArgs args);        \
  template HEDDLE_KERNEL void clamped_swiglu_dgrad<X>(ClampedArgs args);
BIASES(float)
BIASES(Bf16)
#undef BIASES

}  // namespace heddle::kernels::cuda
