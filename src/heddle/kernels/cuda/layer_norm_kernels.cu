// layer_norm, add_layer_norm, layer_norm_dgrad.
//   rstd = (mean (x − mean)² + ε)^−½, x̂ = (x − mean)·rstd, y = x̂·g + b
//   dx = dres + rstd·(g·dy − mean(g·dy) − x̂·mean(g·dy·x̂)), dg = Σ_t dy·x̂, db = Σ_t dy
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/layer_norm_kernels.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int64_t kStep = int64_t{kLayerNormThreads} * kPack;

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kLayerNormThreads) layer_norm(LayerNormArgs args) {
  HEDDLE_SHARED(float, of_warps, kLayerNormThreads / kWarp);
  const int64_t H = args.H, row = static_cast<int64_t>(blockIdx.x) * H;
  const X* a = static_cast<const X*>(args.a_TH) + row;
  const X* b = args.b_TH == nullptr ? nullptr : static_cast<const X*>(args.b_TH) + row;
  X* s = args.s_TH == nullptr ? nullptr : static_cast<X*>(args.s_TH) + row;
  X* y = static_cast<X*>(args.y_TH) + row;
  const bool wide = wide_rows<X>(args.a_TH, H) && wide_rows<X>(args.b_TH, H) && wide_rows<X>(args.s_TH, H) &&
                    wide_rows<X>(args.y_TH, H);
  const bool wide_g = wide_rows<float>(args.g_H, H) && wide_rows<float>(args.bias_H, H);
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * kPack;
  float x[kPack], sum = 0;
  for (int64_t at = begin; at < H; at += kStep) {
    load_pack(a + at, H - at, wide, x);
    if (b != nullptr) {
      float other[kPack];
      load_pack(b + at, H - at, wide, other);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) x[i] = to_float(rounded<X>(x[i] + other[i]));
      store_pack(s + at, H - at, wide, x);
    }
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) sum += x[i];
  }
  const float mean = block_sum(sum, of_warps) / static_cast<float>(H);
  const X* from = b == nullptr ? a : s;  // of this thread's own columns
  sum = 0;
  for (int64_t at = begin; at < H; at += kStep) {
    load_pack(from + at, H - at, wide, x);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      if (at + i < H) sum += (x[i] - mean) * (x[i] - mean);
    }
  }
  const float rstd = 1.0f / sqrtf(block_sum(sum, of_warps) / static_cast<float>(H) + args.epsilon);
  if (threadIdx.x == 0) {
    args.mean_T[blockIdx.x] = mean;
    args.rstd_T[blockIdx.x] = rstd;
  }
  for (int64_t at = begin; at < H; at += kStep) {
    float g[kPack], bias[kPack];
    load_pack(from + at, H - at, wide, x);
    load_pack(args.g_H + at, H - at, wide_g, g);
    load_pack(args.bias_H + at, H - at, wide_g, bias);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) x[i] = (x[i] - mean) * rstd * g[i] + bias[i];
    store_pack(y + at, H - at, wide, x);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kLayerNormThreads) layer_norm_dgrad(LayerNormGradArgs args) {
  HEDDLE_SHARED(float, of_warps, kLayerNormThreads / kWarp);
  const int64_t H = args.H, row = static_cast<int64_t>(blockIdx.x) * H;
  const X* dy_H = static_cast<const X*>(args.dy_TH) + row;
  const X* x_H = static_cast<const X*>(args.x_TH) + row;
  const X* dres_H = args.dres_TH == nullptr ? nullptr : static_cast<const X*>(args.dres_TH) + row;
  X* dx_H = static_cast<X*>(args.dx_TH) + row;
  const bool wide = wide_rows<X>(args.dy_TH, H) && wide_rows<X>(args.x_TH, H) && wide_rows<X>(args.dres_TH, H) &&
                    wide_rows<X>(args.dx_TH, H);
  const bool wide_g = wide_rows<float>(args.g_H, H);
  const float mean = args.mean_T[blockIdx.x], rstd = args.rstd_T[blockIdx.x];
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * kPack;
  float dy[kPack], x[kPack], g[kPack], sum = 0, dot = 0;
  for (int64_t at = begin; at < H; at += kStep) {
    load_pack(dy_H + at, H - at, wide, dy);
    load_pack(x_H + at, H - at, wide, x);
    load_pack(args.g_H + at, H - at, wide_g, g);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      sum += g[i] * dy[i];  // zeros beyond the row
      dot += g[i] * dy[i] * ((x[i] - mean) * rstd);
    }
  }
  const float level = block_sum(sum, of_warps) / static_cast<float>(H);
  const float along = block_sum(dot, of_warps) / static_cast<float>(H);
  for (int64_t at = begin; at < H; at += kStep) {
    load_pack(dy_H + at, H - at, wide, dy);
    load_pack(x_H + at, H - at, wide, x);
    load_pack(args.g_H + at, H - at, wide_g, g);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) x[i] = rstd * (g[i] * dy[i] - level - (x[i] - mean) * rstd * along);
    if (dres_H != nullptr) {
      load_pack(dres_H + at, H - at, wide, dy);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) x[i] = dy[i] + x[i];
    }
    store_pack(dx_H + at, H - at, wide, x);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kLayerNormThreads) layer_norm_sums(LayerNormGradArgs args) {
  const int64_t H = args.H,
                column = static_cast<int64_t>(blockIdx.y) * kStep + static_cast<int64_t>(threadIdx.x) * kPack;
  const int64_t left = H - column;
  if (left <= 0) return;
  const bool wide = wide_rows<X>(args.dy_TH, H) && wide_rows<X>(args.x_TH, H);
  float dg[kPack] = {0, 0, 0, 0, 0, 0, 0, 0}, db[kPack] = {0, 0, 0, 0, 0, 0, 0, 0};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kLayerNormGradRows;
  const int64_t last = min(args.T, first + kLayerNormGradRows);
  for (int64_t t = first; t < last; ++t) {
    float dy[kPack], x[kPack];
    load_pack(static_cast<const X*>(args.dy_TH) + t * H + column, left, wide, dy);
    load_pack(static_cast<const X*>(args.x_TH) + t * H + column, left, wide, x);
    const float mean = args.mean_T[t], rstd = args.rstd_T[t];
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      dg[i] += dy[i] * ((x[i] - mean) * rstd);
      db[i] += dy[i];
    }
  }
  const int64_t at = static_cast<int64_t>(blockIdx.x) * H + column;
  store_pack(args.dg_parts + at, left, wide_rows<float>(args.dg_parts, H), dg);
  store_pack(args.db_parts + at, left, wide_rows<float>(args.db_parts, H), db);
}

template HEDDLE_KERNEL void layer_norm<float>(LayerNormArgs args);
template HEDDLE_KERNEL void layer_norm<Bf16>(LayerNormArgs args);
template HEDDLE_KERNEL void layer_norm_dgrad<float>(LayerNormGradArgs args);
template HEDDLE_KERNEL void layer_norm_dgrad<Bf16>(LayerNormGradArgs args);
template HEDDLE_KERNEL void layer_norm_sums<float>(LayerNormGradArgs args);
template HEDDLE_KERNEL void layer_norm_sums<Bf16>(LayerNormGradArgs args);

}  // namespace heddle::kernels::cuda
