// Element-wise kernels: activations of MLPs and their gradients, products, sums, casts, and columns moved about.
// A thread takes eight columns of sixteen rows, so that the gradient of a bias is a sum in its registers.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/map_kernels.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
HEDDLE_DEVICE float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}
HEDDLE_DEVICE float normal_below(float z) { return 0.5f * erfcf(-z * 0.70710678118654752f); }
HEDDLE_DEVICE float normal_density(float z) { return expf(-0.5f * z * z) * 0.39894228040143268f; }
/// The factor of z in GELU, and its slope; with `tanh` σ(2w) of w = √(2/π)·(z + 0.044715 z³).
constexpr float kTwiceRoot = 1.5957691216057308f, kCube = 0.044715f;
HEDDLE_DEVICE float gelu_part(float z, bool tanh) {
  return tanh ? sigmoid(kTwiceRoot * z * (1.0f + kCube * z * z)) : normal_below(z);
}
HEDDLE_DEVICE float gelu_slope(float z, bool tanh) {
  const float below = gelu_part(z, tanh);
  if (!tanh) return below + z * normal_density(z);
  if (below == 0.0f || below == 1.0f) return below;  // further off z³ has no number
  return below + z * below * (1.0f - below) * kTwiceRoot * (1.0f + 3 * kCube * z * z);
}

}  // namespace

template <class X, Map map>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kMapThreads) map_rows(MapArgs args) {
  constexpr bool gated = map == Map::swiglu || map == Map::swiglu_dgrad;
  constexpr bool biased = gated || map == Map::gelu || map == Map::gelu_dgrad || map == Map::add_bias;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kMapThreads + threadIdx.x) * kPack;
  const int64_t W = args.W, left = W - column;
  if (left <= 0) return;
  const X* in0 = static_cast<const X*>(args.in[0]);
  const X* in1 = static_cast<const X*>(args.in[1]);
  const X* in2 = static_cast<const X*>(args.in[2]);
  X* out0 = static_cast<X*>(args.out[0]);
  X* out1 = static_cast<X*>(args.out[1]);
  bool wide = true;
  HEDDLE_UNROLL
  for (int i = 0; i < 3; ++i) wide = wide && wide_rows<X>(args.in[i], W);
  HEDDLE_UNROLL
  for (int i = 0; i < 2; ++i) wide = wide && wide_rows<X>(args.out[i], W);

  float bias[2][kPack], sum[2][kPack];
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    bias[0][i] = biased && args.bias != nullptr && i < left ? args.bias[column + i] : 0.0f;
    bias[1][i] = gated && args.bias != nullptr && i < left ? args.bias[W + column + i] : 0.0f;
    sum[0][i] = sum[1][i] = 0.0f;
  }
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kMapRows;
  const int64_t last = min(args.T, first + kMapRows);
  for (int64_t t = first; t < last; ++t) {
    const int64_t at = t * W + column, at2 = t * 2 * W + column;
    float a[kPack], b[kPack], y[kPack], z[kPack];
    if constexpr (map == Map::silu || map == Map::gelu || map == Map::add_bias || map == Map::scale ||
                  map == Map::soft_cap || map == Map::clip || map == Map::squared_relu) {
      load_pack(in0 + at, left, wide, a);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const float x = a[i] + bias[0][i];
        y[i] = map == Map::scale          ? args.factor * x
               : map == Map::soft_cap     ? args.factor * tanhf(x / args.factor)
               : map == Map::clip         ? (x > args.factor                  ? args.factor
                                             : args.below && x < -args.factor ? -args.factor
                                                                              : x)
               : map == Map::add_bias     ? x
               : map == Map::squared_relu ? fmaxf(x, 0.0f) * fmaxf(x, 0.0f)
               : map == Map::silu         ? x * sigmoid(x)
                                          : x * gelu_part(x, args.tanh);
      }
      store_pack(out0 + at, left, wide, y);
    } else if constexpr (map == Map::soft_cap_dgrad) {
      load_pack(in0 + at, left, wide, a);
      load_pack(in1 + at, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const float bent = tanhf(b[i] / args.factor);
        y[i] = a[i] * (1.0f - bent) * (1.0f + bent);
      }
      store_pack(out0 + at, left, wide, y);
    } else if constexpr (map == Map::clip_dgrad) {
      load_pack(in0 + at, left, wide, a);
      load_pack(in1 + at, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i)
        y[i] = b[i] > args.factor || (args.below && b[i] < -args.factor) ? 0.0f : a[i];
      store_pack(out0 + at, left, wide, y);
    } else if constexpr (map == Map::squared_relu_dgrad) {
      load_pack(in0 + at, left, wide, a);
      load_pack(in1 + at, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = a[i] * 2.0f * fmaxf(b[i], 0.0f);
      store_pack(out0 + at, left, wide, y);
    } else if constexpr (map == Map::silu_dgrad || map == Map::gelu_dgrad) {
      load_pack(in0 + at, left, wide, a);
      load_pack(in1 + at, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const float x = b[i] + bias[0][i];
        y[i] = a[i] * (map == Map::silu_dgrad ? silu_slope(x) : gelu_slope(x, args.tanh));
        sum[0][i] += y[i];
      }
      store_pack(out0 + at, left, wide, y);
    } else if constexpr (map == Map::multiply || map == Map::add) {
      load_pack(in0 + at, left, wide, a);
      load_pack(in1 + at, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) y[i] = map == Map::add ? a[i] + b[i] : a[i] * b[i];
      store_pack(out0 + at, left, wide, y);
    } else if constexpr (map == Map::multiply_dgrad) {
      float d[kPack];
      load_pack(in0 + at, left, wide, d);
      load_pack(in1 + at, left, wide, a);
      load_pack(in2 + at, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        y[i] = d[i] * b[i];
        z[i] = d[i] * a[i];
      }
      store_pack(out0 + at, left, wide, y);
      store_pack(out1 + at, left, wide, z);
    } else if constexpr (map == Map::swiglu) {
      load_pack(in0 + at2, left, wide, a);
      load_pack(in0 + at2 + W, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const float gate = a[i] + bias[0][i], up = b[i] + bias[1][i];
        y[i] = gate * sigmoid(gate) * up;
      }
      store_pack(out0 + at, left, wide, y);
    } else {
      float d[kPack];
      load_pack(in0 + at, left, wide, d);
      load_pack(in1 + at2, left, wide, a);
      load_pack(in1 + at2 + W, left, wide, b);
      HEDDLE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const float gate = a[i] + bias[0][i], up = b[i] + bias[1][i];
        y[i] = d[i] * up * silu_slope(gate);
        z[i] = d[i] * (gate * sigmoid(gate));
        sum[0][i] += y[i];
        sum[1][i] += z[i];
      }
      store_pack(out0 + at2, left, wide, y);
      store_pack(out0 + at2 + W, left, wide, z);
    }
  }
  if (args.bias_parts == nullptr) return;
  float* parts = args.bias_parts + static_cast<int64_t>(blockIdx.x) * W * (gated ? 2 : 1) + column;
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) {
      parts[i] = sum[0][i];
      if (gated) parts[W + i] = sum[1][i];
    }
  }
}

template <class X, int lanes>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kGateThreads) sigmoid_gates(GateArgs args) {
  constexpr int kGates = kGateThreads / lanes;  // of a block
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kGates + threadIdx.x / lanes;
  if (j >= args.gates) return;  // all lanes of a gate alike
  const int64_t first = j * args.run;
  const X* x = static_cast<const X*>(args.x) + first;
  X* y = static_cast<X*>(args.y) + first;
  const float g = to_float(static_cast<const X*>(args.gate_TG)[j]), open = sigmoid(g);
  const float s = args.softplus ? fmaxf(g, 0.0f) + log1pf(expf(-fabsf(g))) : open;
  const float slope = args.softplus ? open : s * (1.0f - s);
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  if (args.dy == nullptr) {
    for (int64_t i = lane; i < args.run; i += lanes) y[i] = rounded<X>(to_float(x[i]) * s);
    return;
  }
  const X* dy = static_cast<const X*>(args.dy) + first;
  float sum = 0;
  for (int64_t i = lane; i < args.run; i += lanes) {
    const float d = to_float(dy[i]);
    sum += d * to_float(x[i]) * slope;
    y[i] = rounded<X>(d * s);
  }
  if (lanes > 1) sum = warp_sum(sum);
  if (lane == 0) static_cast<X*>(args.dgate_TG)[j] = rounded<X>(sum);
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) scale_by(ScaleByArgs args) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack, left = args.count - at;
  if (left <= 0) return;
  const bool wide = reinterpret_cast<uintptr_t>(args.x) % 16 == 0 && reinterpret_cast<uintptr_t>(args.y) % 16 == 0;
  float v[kPack];
  load_pack(static_cast<const X*>(args.x) + at, left, wide, v);
  HEDDLE_UNROLL
  for (int i = 0; i < kPack; ++i) {
    if (i < left) v[i] *= args.s[args.index == nullptr ? (at + i) / args.run : args.index[at + i]];
  }
  store_pack(static_cast<X*>(args.y) + at, left, wide, v);
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kScaleSumThreads) scale_by_sums(ScaleSumArgs args) {
  HEDDLE_SHARED(float, of_threads, kScaleSumThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const auto n = static_cast<int32_t>(blockIdx.x);
  float sum = 0;
  for (int64_t i = thread; i < args.count; i += kScaleSumThreads) {
    if (args.index[i] == n)
      sum += to_float(static_cast<const X*>(args.dy)[i]) * to_float(static_cast<const X*>(args.x)[i]);
  }
  of_threads[thread] = sum;
  for (int half = kScaleSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) of_threads[thread] += of_threads[thread + half];
  }
  if (thread == 0) args.acc[n] = args.add ? args.acc[n] + of_threads[0] : of_threads[0];
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kMapThreads) column_parts(ColumnPartsArgs args) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kMapThreads + threadIdx.x) * kPack;
  const int64_t W = args.W, left = W - column;
  if (left <= 0) return;
  const bool wide = wide_rows<X>(args.rows_TW, W);
  float sum[kPack] = {0, 0, 0, 0, 0, 0, 0, 0};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kMapRows;
  const int64_t last = min(args.T, first + kMapRows);
  for (int64_t t = first; t < last; ++t) {
    float v[kPack];
    load_pack(static_cast<const X*>(args.rows_TW) + t * W + column, left, wide, v);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) sum[i] += v[i];
  }
  store_pack(args.parts + static_cast<int64_t>(blockIdx.x) * W + column, left, wide_rows<float>(args.parts, W),
             sum);
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kColumnSumWidth* kColumnSumGroups) column_sum(ColumnSumArgs args) {
  HEDDLE_SHARED(float, of_warps, kColumnSumWidth* kColumnSumGroups);
  const int place = threadIdx.x % kColumnSumWidth, group = threadIdx.x / kColumnSumWidth;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnSumWidth + place;
  float sum = 0;
  if (column < args.W) {
    for (int64_t p = group; p < args.P; p += kColumnSumGroups) sum += args.parts_PW[p * args.W + column];
  }
  of_warps[group * kColumnSumWidth + place] = sum;
  __syncthreads();
  if (group > 0 || column >= args.W) return;
  for (int g = 1; g < kColumnSumGroups; ++g) sum += of_warps[g * kColumnSumWidth + place];
  args.out_W[column] = args.add ? args.out_W[column] + sum : sum;
}

template <class P, class A>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) accumulate(AccumulateArgs args) {
  const P* p = static_cast<const P*>(args.p);
  A* acc = static_cast<A*>(args.acc);
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.count; i += step) {
    const A value = static_cast<A>(p[i]);
    acc[i] = args.overwrite ? value : acc[i] + value;
  }
}
template <class X>
HEDDLE_DEVICE void accumulate_bf16(const AccumulateArgs& args) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack, left = args.count - at;
  if (left <= 0) return;
  float p[kPack], acc[kPack];
  float* to = static_cast<float*>(args.acc) + at;
  const bool wide =
      reinterpret_cast<uintptr_t>(args.p) % 16 == 0 && reinterpret_cast<uintptr_t>(args.acc) % 16 == 0;
  load_pack(static_cast<const X*>(args.p) + at, left, wide, p);
  if (!args.overwrite) {
    load_pack(to, left, wide, acc);
    HEDDLE_UNROLL
    for (int i = 0; i < kPack; ++i) p[i] = acc[i] + p[i];
  }
  store_pack(to, left, wide, p);
}
template <>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) accumulate<Bf16, float>(AccumulateArgs args) {
  accumulate_bf16<Bf16>(args);
}
template <>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) accumulate<float, float>(AccumulateArgs args) {
  accumulate_bf16<float>(args);
}

template <class From, class To>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) cast(CastArgs args) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kPack, left = args.count - at;
  if (left <= 0) return;
  const bool wide =
      reinterpret_cast<uintptr_t>(args.from) % 16 == 0 && reinterpret_cast<uintptr_t>(args.to) % 16 == 0;
  float v[kPack];
  load_pack(static_cast<const From*>(args.from) + at, left, wide, v);
  store_pack(static_cast<To*>(args.to) + at, left, wide, v);
}

template <class Unit>
HEDDLE_KERNEL void HEDDLE_BOUNDS(256) copy_columns(CopyColumnsArgs args) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x, count = args.T * args.width;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t t = i / args.width, c = i - t * args.width;
    static_cast<Unit*>(args.to)[t * args.to_pitch + c] =
        args.from == nullptr ? Unit{} : static_cast<const Unit*>(args.from)[t * args.from_pitch + c];
  }
}

#define MAP(op)                                                       \
  template HEDDLE_KERNEL void map_rows<float, Map::op>(MapArgs args); \
  template HEDDLE_KERNEL void map_rows<Bf16, Map::op>(MapArgs args);
MAP(silu)
MAP(silu_dgrad)
MAP(multiply)
MAP(multiply_dgrad)
MAP(gelu)
MAP(gelu_dgrad)
MAP(swiglu)
MAP(swiglu_dgrad)
MAP(add)
MAP(add_bias)
MAP(scale)
MAP(soft_cap)
MAP(soft_cap_dgrad)
MAP(clip)
MAP(clip_dgrad)
MAP(squared_relu)
MAP(squared_relu_dgrad)
#undef MAP
template HEDDLE_KERNEL void sigmoid_gates<float, 1>(GateArgs args);
template HEDDLE_KERNEL void sigmoid_gates<float, kWarp>(GateArgs args);
template HEDDLE_KERNEL void sigmoid_gates<Bf16, 1>(GateArgs args);
template HEDDLE_KERNEL void sigmoid_gates<Bf16, kWarp>(GateArgs args);
template HEDDLE_KERNEL void scale_by<float>(ScaleByArgs args);
template HEDDLE_KERNEL void scale_by<Bf16>(ScaleByArgs args);
template HEDDLE_KERNEL void scale_by_sums<float>(ScaleSumArgs args);
template HEDDLE_KERNEL void scale_by_sums<Bf16>(ScaleSumArgs args);
template HEDDLE_KERNEL void accumulate<double, double>(AccumulateArgs args);
template HEDDLE_KERNEL void accumulate<float, double>(AccumulateArgs args);
template HEDDLE_KERNEL void accumulate<float, float>(AccumulateArgs args);
template HEDDLE_KERNEL void accumulate<Bf16, float>(AccumulateArgs args);
template HEDDLE_KERNEL void column_parts<float>(ColumnPartsArgs args);
template HEDDLE_KERNEL void column_parts<Bf16>(ColumnPartsArgs args);
template HEDDLE_KERNEL void cast<Bf16, float>(CastArgs args);
template HEDDLE_KERNEL void cast<float, Bf16>(CastArgs args);
template HEDDLE_KERNEL void cast<float, float>(CastArgs args);
template HEDDLE_KERNEL void copy_columns<uint16_t>(CopyColumnsArgs args);
template HEDDLE_KERNEL void copy_columns<uint64_t>(CopyColumnsArgs args);
template HEDDLE_KERNEL void copy_columns<Quad>(CopyColumnsArgs args);

}  // namespace heddle::kernels::cuda
