// norm_streams, read_gated_streams, gate_streams and their gradients (ops/gated_streams.cpp). A
// thread has the same columns of every row that its block takes.
#include "heddle/kernels/cuda/gated_stream_kernels.h"
#include "heddle/kernels/cuda/language.h"

namespace heddle::kernels::cuda {

namespace {

constexpr int kGatedWarps = kGatedThreads / kWarp;

HEDDLE_DEVICE float sigmoid_of_gate(float x) { return 1.0f / (1.0f + expf(-x)); }

/// Calls body(h) for this thread's columns of a row of H.
template <class Body>
HEDDLE_DEVICE void each_column(int64_t H, const Body& body) {
  for (int64_t h = static_cast<int64_t>(threadIdx.x); h < H; h += static_cast<int64_t>(blockDim.x)) body(h);
}

/// The numbers of a row of a tensor.
template <class X>
HEDDLE_DEVICE const X* stream_row(const void* of, int64_t row, int64_t columns) {
  return static_cast<const X*>(of) + row * columns;
}
template <class X>
HEDDLE_DEVICE X* stream_row(void* of, int64_t row, int64_t columns) {
  return static_cast<X*>(of) + row * columns;
}

/// d = k·y ÷ √H of a stream of a row, and its root with its sign.
struct StreamGate {
  float d, e, gate;
};
template <class X>
HEDDLE_DEVICE StreamGate gate_of(const GatedArgs& args, int64_t stream, float* of_warps) {
  const X *k = stream_row<X>(args.x, stream, args.H), *y = stream_row<X>(args.y, stream, args.H);
  float sum = 0;
  each_column(args.H, [&](int64_t h) { sum += to_float(k[h]) * to_float(y[h]); });
  StreamGate of;
  of.d = block_sum(sum, of_warps) / sqrtf(static_cast<float>(args.H));
  const float root = sqrtf(fmaxf(fabsf(of.d), 1e-6f));
  of.e = of.d == 0.0f ? 0.0f : of.d < 0.0f ? -root : root;
  of.gate = sigmoid_of_gate(of.e);
  return of;
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kGatedThreads) norm_gated(GatedArgs args) {
  HEDDLE_SHARED(float, of_warps, kGatedWarps);
  for (int i = 0; i < args.n; ++i) {
    const int64_t stream = static_cast<int64_t>(blockIdx.x) * args.n + i;
    const X* x = stream_row<X>(args.x, stream, args.H);
    const float* g = args.g + i * args.H;
    X* y = stream_row<X>(args.to, stream, args.H);
    float sum = 0;
    each_column(args.H, [&](int64_t h) { sum += to_float(x[h]) * to_float(x[h]); });
    const float rstd = 1.0f / sqrtf(block_sum(sum, of_warps) / static_cast<float>(args.H) + args.epsilon);
    if (threadIdx.x == 0) args.to_w[stream] = rstd;
    each_column(args.H, [&](int64_t h) { y[h] = rounded<X>(to_float(x[h]) * rstd * (args.offset + g[h])); });
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kGatedThreads) norm_gated_dgrad(GatedArgs args) {
  HEDDLE_SHARED(float, of_warps, kGatedWarps);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGatedGradRows;
  const int64_t last = first + kGatedGradRows < args.T ? first + kGatedGradRows : args.T;
  for (int64_t t = first; t < last; ++t) {
    for (int i = 0; i < args.n; ++i) {
      const int64_t stream = t * args.n + i;
      const X *dy = stream_row<X>(args.y, stream, args.H), *x = stream_row<X>(args.x, stream, args.H);
      const X* dres = args.dres == nullptr ? nullptr : stream_row<X>(args.dres, stream, args.H);
      const float* g = args.g + i * args.H;
      float* dg = args.dg_parts + (static_cast<int64_t>(blockIdx.x) * args.n + i) * args.H;
      X* dx = stream_row<X>(args.to, stream, args.H);
      float sum = 0;
      each_column(args.H, [&](int64_t h) { sum += (args.offset + g[h]) * to_float(dy[h]) * to_float(x[h]); });
      const float rstd = args.w[stream];
      const float along = rstd * rstd * (block_sum(sum, of_warps) / static_cast<float>(args.H));
      each_column(args.H, [&](int64_t h) {
        const float dy_h = to_float(dy[h]), x_h = to_float(x[h]);
        const float d = rstd * ((args.offset + g[h]) * dy_h - x_h * along);
        dx[h] = rounded<X>(dres == nullptr ? d : to_float(dres[h]) + d);
        dg[h] = (t == first ? 0.0f : dg[h]) + dy_h * x_h * rstd;
      });
    }
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kGatedThreads) read_gated(GatedArgs args) {
  const int64_t t = static_cast<int64_t>(blockIdx.x), W = args.n * args.H;
  const X *y = stream_row<X>(args.y, t, W), *u = stream_row<X>(args.u, t, W);
  X* r = stream_row<X>(args.to_row, t, args.H);
  each_column(args.H, [&](int64_t h) {
    float sum = 0;
    for (int i = 0; i < args.n; ++i)
      sum += sigmoid_of_gate(to_float(u[i * args.H + h])) * to_float(y[i * args.H + h]);
    r[h] = rounded<X>(sum / static_cast<float>(args.n));
  });
  if (args.w == nullptr) return;
  each_column(args.n, [&](int64_t i) {
    args.to_w[t * args.n + i] = 2.0f * sigmoid_of_gate(args.w[t * args.n + i] / static_cast<float>(args.n));
  });
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kGatedThreads) read_gated_dgrad(GatedArgs args) {
  const int64_t t = static_cast<int64_t>(blockIdx.x), W = args.n * args.H;
  const X *dr = stream_row<X>(args.row, t, args.H), *y = stream_row<X>(args.y, t, W),
          *u = stream_row<X>(args.u, t, W);
  X *dy = stream_row<X>(args.to, t, W), *du = stream_row<X>(args.to_second, t, W);
  const auto n = static_cast<float>(args.n);
  each_column(args.H, [&](int64_t h) {
    const float d = to_float(dr[h]) / n;
    for (int i = 0; i < args.n; ++i) {
      const int64_t at = i * args.H + h;
      const float gate = sigmoid_of_gate(to_float(u[at]));
      du[at] = rounded<X>(gate * (1.0f - gate) * to_float(y[at]) * d);
      dy[at] = rounded<X>(gate * d);
    }
  });
  if (args.w == nullptr) return;
  each_column(args.n, [&](int64_t i) {
    const float w = args.w[t * args.n + i];
    args.to_w[t * args.n + i] = args.dw[t * args.n + i] * w * (1.0f - w / 2.0f) / n;
  });
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kGatedThreads) gate_rows(GatedArgs args) {
  HEDDLE_SHARED(float, of_warps, kGatedWarps);
  const int64_t t = static_cast<int64_t>(blockIdx.x);
  const X* v = stream_row<X>(args.row, t, args.H);
  for (int i = 0; i < args.n; ++i) {
    const int64_t stream = t * args.n + i;
    const float gate = gate_of<X>(args, stream, of_warps).gate;
    X* to = stream_row<X>(args.to, stream, args.H);
    each_column(args.H, [&](int64_t h) { to[h] = rounded<X>(gate * to_float(v[h])); });
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kGatedThreads) gate_rows_dgrad(GatedArgs args) {
  HEDDLE_SHARED(float, of_warps, kGatedWarps);
  HEDDLE_SHARED(float, gates, kMostGatedStreams);
  const int64_t t = static_cast<int64_t>(blockIdx.x);
  const X* v = stream_row<X>(args.row, t, args.H);
  for (int i = 0; i < args.n; ++i) {
    const int64_t stream = t * args.n + i;
    const StreamGate of = gate_of<X>(args, stream, of_warps);
    const X *ds = stream_row<X>(args.u, stream, args.H), *k = stream_row<X>(args.x, stream, args.H),
            *y = stream_row<X>(args.y, stream, args.H);
    X *dk = stream_row<X>(args.to, stream, args.H), *dy = stream_row<X>(args.to_second, stream, args.H);
    float sum = 0;
    each_column(args.H, [&](int64_t h) { sum += to_float(ds[h]) * to_float(v[h]); });
    sum = block_sum(sum, of_warps);
    const float slope = fabsf(of.d) < 1e-6f ? 0.0f : of.gate * (1.0f - of.gate) / (2.0f * fabsf(of.e));
    const float dd = slope * sum / sqrtf(static_cast<float>(args.H));
    each_column(args.H, [&](int64_t h) {
      const float k_h = to_float(k[h]), y_h = to_float(y[h]);
      dk[h] = rounded<X>(dd * y_h);
      dy[h] = rounded<X>(dd * k_h);
    });
    if (threadIdx.x == 0) gates[i] = of.gate;
  }
  __syncthreads();
  X* dv = stream_row<X>(args.to_row, t, args.H);
  each_column(args.H, [&](int64_t h) {
    float sum = 0;
    for (int i = 0; i < args.n; ++i) sum += gates[i] * to_float(stream_row<X>(args.u, t * args.n + i, args.H)[h]);
    dv[h] = rounded<X>(sum);
  });
}

template HEDDLE_KERNEL void norm_gated<float>(GatedArgs args);
template HEDDLE_KERNEL void norm_gated<Bf16>(GatedArgs args);
template HEDDLE_KERNEL void norm_gated_dgrad<float>(GatedArgs args);
template HEDDLE_KERNEL void norm_gated_dgrad<Bf16>(GatedArgs args);
template HEDDLE_KERNEL void read_gated<float>(GatedArgs args);
template HEDDLE_KERNEL void read_gated<Bf16>(GatedArgs args);
template HEDDLE_KERNEL void read_gated_dgrad<float>(GatedArgs args);
template HEDDLE_KERNEL void read_gated_dgrad<Bf16>(GatedArgs args);
template HEDDLE_KERNEL void gate_rows<float>(GatedArgs args);
template HEDDLE_KERNEL void gate_rows<Bf16>(GatedArgs args);
template HEDDLE_KERNEL void gate_rows_dgrad<float>(GatedArgs args);
template HEDDLE_KERNEL void gate_rows_dgrad<Bf16>(GatedArgs args);

}  // namespace heddle::kernels::cuda
