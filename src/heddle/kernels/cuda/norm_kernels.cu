// rms_norm, add_rms_norm, rms_norm_dgrad: one pass over memory, rows kept in registers.
//   rstd = (mean x² + ε)^−½, y = x·rstd·(offset + g); with the offset in g,
//   dx = dres + rstd·(g·dy − x·rstd²·mean(g·dy·x)), dg = Σ_t dy·x·rstd
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/norm_kernels.h"

namespace heddle::kernels::cuda {

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kNormThreads) rms_norm(NormArgs args) {
  HEDDLE_SHARED(float, of_warps, kNormThreads / kWarp);
  const int64_t H = args.H, row = static_cast<int64_t>(blockIdx.x) * H;
  const X* a = static_cast<const X*>(args.a_TH) + row;
  const X* b = args.b_TH == nullptr ? nullptr : static_cast<const X*>(args.b_TH) + row;
  X* s = args.s_TH == nullptr ? nullptr : static_cast<X*>(args.s_TH) + row;
  X* y = static_cast<X*>(args.y_TH) + row;
  const bool wide = wide_rows<X>(args.a_TH, H) && wide_rows<X>(args.b_TH, H) && wide_rows<X>(args.s_TH, H) &&
                    wide_rows<X>(args.y_TH, H);
  const bool wide_g = reinterpret_cast<uintptr_t>(args.g_H) % 16 == 0;
  float x[kNormPacks][kPack];
  float sum = 0;
  HEDDLE_UNROLL
  for (int p = 0; p < kNormPacks; ++p) {
    const int64_t at = (static_cast<int64_t>(p) * kNormThreads + threadIdx.x) * kPack, left = H - at;
    if (left <= 0) break;
    load_pack(a + at, left, wide, x[p]);
    if (b != nullptr) {
      float other[kPack];
      load_pack(b + at, left, wide, other);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) x[p][i] = to_float(rounded<X>(x[p][i] + other[i]));
      store_pack(s + at, left, wide, x[p]);
    }
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) sum += x[p][i] * x[p][i];
  }
  sum = block_sum(sum, of_warps);
  const float rstd = 1.0f / sqrtf(sum / static_cast<float>(H) + args.epsilon);
  if (threadIdx.x == 0) args.rstd_T[blockIdx.x] = rstd;
  HEDDLE_UNROLL
  for (int p = 0; p < kNormPacks; ++p) {
    const int64_t at = (static_cast<int64_t>(p) * kNormThreads + threadIdx.x) * kPack, left = H - at;
    if (left <= 0) break;
    float g[kPack];
    load_pack(args.g_H + at, left, wide_g, g);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) x[p][i] = x[p][i] * rstd * (args.offset + g[i]);
    store_pack(y + at, left, wide, x[p]);
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kNormThreads) rms_norm_dgrad(NormGradArgs args) {
  HEDDLE_SHARED(float, of_warps, kNormThreads / kWarp);
  const int64_t H = args.H;
  const bool wide = wide_rows<X>(args.dy_TH, H) && wide_rows<X>(args.x_TH, H) && wide_rows<X>(args.dres_TH, H) &&
                    wide_rows<X>(args.dx_TH, H);
  const bool wide_g = reinterpret_cast<uintptr_t>(args.g_H) % 16 == 0;
  float dg[kNormPacks][kPack];
  HEDDLE_UNROLL
  for (int p = 0; p < kNormPacks; ++p) {
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) dg[p][i] = 0;
  }
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kNormGradRows;
  const int64_t last = min(args.T, first + kNormGradRows);
  for (int64_t t = first; t < last; ++t) {
    const X* dy = static_cast<const X*>(args.dy_TH) + t * H;
    const X* x = static_cast<const X*>(args.x_TH) + t * H;
    const X* dres = args.dres_TH == nullptr ? nullptr : static_cast<const X*>(args.dres_TH) + t * H;
    X* dx = static_cast<X*>(args.dx_TH) + t * H;
    const float rstd = args.rstd_T[t];
    float gdy[kNormPacks][kPack], xs[kNormPacks][kPack];
    float sum = 0;
    HEDDLE_UNROLL
    for (int p = 0; p < kNormPacks; ++p) {
      const int64_t at = (static_cast<int64_t>(p) * kNormThreads + threadIdx.x) * kPack, left = H - at;
      if (left <= 0) break;
      float g[kPack];
      load_pack(dy + at, left, wide, gdy[p]);
      load_pack(x + at, left, wide, xs[p]);
      load_pack(args.g_H + at, left, wide_g, g);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        dg[p][i] += gdy[p][i] * xs[p][i] * rstd;
        gdy[p][i] = (args.offset + g[i]) * gdy[p][i];
        sum += gdy[p][i] * xs[p][i];
      }
    }
    sum = block_sum(sum, of_warps);
    const float along_x = rstd * rstd * (sum / static_cast<float>(H));
    HEDDLE_UNROLL
    for (int p = 0; p < kNormPacks; ++p) {
      const int64_t at = (static_cast<int64_t>(p) * kNormThreads + threadIdx.x) * kPack, left = H - at;
      if (left <= 0) break;
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) gdy[p][i] = rstd * (gdy[p][i] - xs[p][i] * along_x);
      if (dres != nullptr) {
        float r[kPack];
        load_pack(dres + at, left, wide, r);
        HEDDLE_UNROLL
        for (int i = 0; i < kPack; ++i) gdy[p][i] = r[i] + gdy[p][i];
      }
      store_pack(dx + at, left, wide, gdy[p]);
    }
  }
  HEDDLE_UNROLL
  for (int p = 0; p < kNormPacks; ++p) {
    const int64_t at = (static_cast<int64_t>(p) * kNormThreads + threadIdx.x) * kPack, left = H - at;
    if (left <= 0) break;
    store_pack(args.dg_parts + static_cast<int64_t>(blockIdx.x) * H + at, left, wide_rows<float>(args.dg_parts, H),
               dg[p]);
  }
}

template HEDDLE_KERNEL void rms_norm<float>(NormArgs args);
template HEDDLE_KERNEL void rms_norm<Bf16>(NormArgs args);
template HEDDLE_KERNEL void rms_norm_dgrad<float>(NormGradArgs args);
template HEDDLE_KERNEL void rms_norm_dgrad<Bf16>(NormGradArgs args);

}  // namespace heddle::kernels::cuda
