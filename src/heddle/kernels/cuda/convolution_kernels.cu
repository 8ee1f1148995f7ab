// Short causal convolutions, log decays and gated norms: what stands around a recurrence.
#include "heddle/kernels/cuda/language.h"
#include "heddle/kernels/cuda/recurrence_kernels.h"

namespace heddle::kernels::cuda {

namespace {

HEDDLE_DEVICE float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }
HEDDLE_DEVICE float silu_slope_of(float x) {
  const float s = sigmoid_of(x);
  return s * (1.0f + x * (1.0f - s));
}

HEDDLE_DEVICE int64_t rows_back(const ConvArgs& args, int64_t t) {
  if (args.starts == nullptr && args.before != nullptr) return args.K - 1;
  return min(args.K - 1, (t % args.S - (args.starts == nullptr ? 0 : args.starts[t])) / args.D);
}

/// The place of row t − i·D of a piece among the rows before it.
HEDDLE_DEVICE int64_t among_before(const ConvArgs& args, int64_t t, int64_t i) {
  return (t / args.S + 1) * (args.K - 1) * args.D + t % args.S - i * args.D;
}
template <class X>
HEDDLE_DEVICE float row_seen(const ConvArgs& args, int64_t t, int64_t i, int64_t c) {
  if (i * args.D <= t % args.S) return to_float(static_cast<const X*>(args.x)[(t - i * args.D) * args.C + c]);
  return to_float(static_cast<const X*>(args.before)[among_before(args, t, i) * args.C + c]);
}

template <class X>
HEDDLE_DEVICE float convolved(const ConvArgs& args, int64_t t, int64_t c) {
  float z = args.bias == nullptr ? 0.0f : args.bias[c];
  for (int64_t i = 0, back = rows_back(args, t); i <= back; ++i)
    z += args.weight[c * args.K + args.K - 1 - i] * row_seen<X>(args, t, i, c);
  return z;
}
template <class X>
HEDDLE_DEVICE float gradient_before(const ConvArgs& args, int64_t t, int64_t c) {
  const float dy = to_float(static_cast<const X*>(args.dy)[t * args.C + c]);
  return args.silu ? dy * silu_slope_of(convolved<X>(args, t, c)) : dy;
}

}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) conv_forward(ConvArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x;
  if (at >= args.T * args.C) return;
  const float z = convolved<X>(args, at / args.C, at % args.C);
  static_cast<X*>(args.y)[at] = rounded<X>(args.silu ? z * sigmoid_of(z) : z);
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) conv_backward(ConvArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x;
  if (at >= args.T * args.C) return;
  const int64_t t = at / args.C, c = at % args.C;
  float dx = 0;
  for (int64_t i = 0; i < args.K && t % args.S + i * args.D < args.S; ++i) {
    if (rows_back(args, t + i * args.D) < i) break;
    dx += args.weight[c * args.K + args.K - 1 - i] * gradient_before<X>(args, t + i * args.D, c);
  }
  const int64_t last = min((args.K - 1) * args.D, args.S), to_end = args.S - t % args.S;
  if (args.behind != nullptr && to_end <= last) dx += args.behind[((t / args.S + 1) * last - to_end) * args.C + c];
  static_cast<X*>(args.dx)[at] = rounded<X>(dx);
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) conv_before(ConvArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x, kept = (args.K - 1) * args.D;
  if (at >= args.sequences * kept * args.C) return;
  const int64_t c = at % args.C, row = at / args.C, n = row / kept, j = row % kept;
  float d = 0;
  for (int64_t t = n * args.S; t < n * args.S + min(j + 1, args.S); ++t) {
    const int64_t apart = t % args.S + kept - j, i = apart / args.D;
    if (apart % args.D == 0 && rows_back(args, t) >= i)
      d += args.weight[c * args.K + args.K - 1 - i] * gradient_before<X>(args, t, c);
  }
  args.d_before[at] = d;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) take_ends(PieceArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x;
  if (at >= args.made * args.C) return;
  const int64_t row = at / args.C, from = (row / args.count + 1) * args.S - args.count + row % args.count;
  static_cast<X*>(args.y)[at] = static_cast<const X*>(args.x)[from * args.C + at % args.C];
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) take_before(PieceArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x;
  if (at >= args.made * args.C) return;
  const int64_t row = at / args.C, n = row / args.count;
  const int64_t from = args.own[n % 2] * args.rows - args.count + row % args.count;
  const X* x = static_cast<const X*>(args.x) + (n / 2 * args.pieces * args.rows + from) * args.C;
  static_cast<X*>(args.y)[at] = from < 0 ? rounded<X>(0.0f) : x[at % args.C];
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) sum_behind(PieceArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x;
  if (at >= args.made * args.C) return;
  const int64_t row = at / args.C, n = row / args.rows, p = args.own[n % 2];
  float sum = 0;
  for (int64_t later = p + 1; later < args.pieces; ++later) {
    const int64_t of = (p - later) * args.rows + args.count + row % args.rows;
    if (of < 0 || of >= args.count) continue;
    sum +=
        static_cast<const float*>(args.x)[((n / 2 * args.pieces + later) * args.count + of) * args.C + at % args.C];
  }
  static_cast<float*>(args.y)[at] = sum;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) conv_sums(ConvArgs args) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x, part = blockIdx.y;
  if (c >= args.C) return;
  float sums[kMostTaps] = {}, bias = 0;
  for (int64_t t = part * kConvRows; t < min(args.T, (part + 1) * kConvRows); ++t) {
    const float dz = gradient_before<X>(args, t, c);
    const int64_t back = rows_back(args, t);
    for (int64_t i = 0; i < kMostTaps; ++i) {
      if (i <= back) sums[i] += dz * row_seen<X>(args, t, i, c);
    }
    bias += dz;
  }
  for (int64_t i = 0; i < args.K; ++i) args.weight_parts[(part * args.C + c) * args.K + args.K - 1 - i] = sums[i];
  if (args.bias != nullptr) args.bias_parts[part * args.C + c] = bias;
}

template <class X, int kMost>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) conv_cached(ConvArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x;
  if (at >= args.sequences * args.C) return;
  const int64_t n = at / args.C, c = at % args.C, kept = (args.K - 1) * args.D;
  X* tail = static_cast<X*>(args.tails) + n * kept * args.C + c;
  float last[kMost] = {};  // the newest first
  for (int64_t i = 0; i < kept; ++i) last[i] = to_float(tail[(kept - 1 - i) * args.C]);
  for (int64_t t = 0; t < args.T; ++t) {
    const int64_t place = args.places[t];
    X* y = static_cast<X*>(args.y) + t * args.C + c;
    if (place < 0 && n == 0) *y = rounded<X>(0.0f);
    if (place < 0 || place / args.S != n) continue;
    for (int i = 0; i < kMost && place % args.S == 0; ++i) last[i] = 0;
    const float x = to_float(static_cast<const X*>(args.x)[t * args.C + c]);
    float z = (args.bias == nullptr ? 0.0f : args.bias[c]) + args.weight[c * args.K + args.K - 1] * x;
    for (int64_t i = 1; i < args.K; ++i) z += args.weight[c * args.K + args.K - 1 - i] * last[i * args.D - 1];
    *y = rounded<X>(args.silu ? z * sigmoid_of(z) : z);
    for (int i = kMost - 1; i > 0; --i) last[i] = last[i - 1];
    last[0] = x;
  }
  for (int64_t i = 0; i < kept; ++i) tail[(kept - 1 - i) * args.C] = rounded<X>(last[i]);
}

namespace {
HEDDLE_DEVICE float softplus_of(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
HEDDLE_DEVICE float cut(const DecayArgs& args, float dt) { return fminf(fmaxf(dt, args.least), args.most); }
}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) decay_forward(DecayArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x, c = at % args.C;
  if (at >= args.T * args.C) return;
  const float in = to_float(static_cast<const X*>(args.x)[at]) + (args.bias == nullptr ? 0.0f : args.bias[c]);
  const float rate = expf(args.a_log[c / args.run]);
  if (args.bound != 0) {
    args.decay[at] = args.bound * sigmoid_of(rate * in);
    return;
  }
  const float dt = cut(args, softplus_of(in));
  args.decay[at] = -rate * dt;
  if (args.step != nullptr) args.step[at] = dt;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) decay_backward(DecayArgs args) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x, part = blockIdx.y;
  if (c >= args.C) return;
  const float rate = expf(args.a_log[c / args.run]), bias = args.bias == nullptr ? 0.0f : args.bias[c];
  float of_a = 0, of_bias = 0;
  for (int64_t t = part * kConvRows; t < min(args.T, (part + 1) * kConvRows); ++t) {
    const int64_t at = t * args.C + c;
    const float in = to_float(static_cast<const X*>(args.x)[at]) + bias;
    float d = args.d_step == nullptr ? 0.0f : args.d_step[at];
    if (args.bound != 0) {
      const float z = rate * in, s = sigmoid_of(z), dz = args.d_decay[at] * args.bound * s * (1.0f - s);
      d = rate * dz;
      of_a += dz * z;
    } else {
      const float free = softplus_of(in), dt = cut(args, free);
      if (args.d_decay != nullptr) {
        d -= rate * args.d_decay[at];
        of_a -= rate * args.d_decay[at] * dt;
      }
      d = free == dt ? d * sigmoid_of(in) : 0.0f;
    }
    static_cast<X*>(args.dx)[at] = rounded<X>(d);
    of_bias += d;
  }
  args.a_parts[part * args.C + c] = of_a;
  args.bias_parts[part * args.C + c] = of_bias;
}

HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) decay_heads(DecayArgs args) {
  const int64_t head = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x;
  if (head >= args.C / args.run) return;
  float sum = 0;
  for (int64_t c = head * args.run; c < (head + 1) * args.run; ++c) sum += args.a_columns[c];
  args.d_a[head] = sum;
}

namespace {
HEDDLE_DEVICE float act(const GatedNormArgs& args, float z) {
  return args.sigmoid ? sigmoid_of(z) : z * sigmoid_of(z);
}
}  // namespace

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) gated_norm_forward(GatedNormArgs args) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * (kRecurThreads / kWarp) + threadIdx.x / kWarp;
  if (n >= args.T * (args.C / args.run)) return;
  const int64_t first = n * args.run;
  const X *x = static_cast<const X*>(args.x) + first, *gate = static_cast<const X*>(args.gate) + first;
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarp; i < args.run; i += kWarp) {
    const float value = to_float(x[i]) * (args.gate_first ? act(args, to_float(gate[i])) : 1.0f);
    sum += value * value;
  }
  const float rstd = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(args.run) + args.epsilon);
  for (int64_t i = threadIdx.x % kWarp; i < args.run; i += kWarp)
    static_cast<X*>(args.y)[first + i] =
        rounded<X>(to_float(x[i]) * act(args, to_float(gate[i])) * rstd * args.g[(first + i) % args.C % args.G]);
  if (threadIdx.x % kWarp == 0) args.rstd[n] = rstd;
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) gated_norm_backward(GatedNormArgs args) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * (kRecurThreads / kWarp) + threadIdx.x / kWarp;
  if (n >= args.T * (args.C / args.run)) return;
  const int64_t first = n * args.run;
  const X *x = static_cast<const X*>(args.x) + first, *gate = static_cast<const X*>(args.gate) + first;
  const X* dy = static_cast<const X*>(args.dy) + first;
  const float rstd = args.rstd[n];
  const auto weighted = [&](int64_t i) { return to_float(dy[i]) * args.g[(first + i) % args.C % args.G]; };
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarp; i < args.run; i += kWarp)
    sum += weighted(i) * act(args, to_float(gate[i])) * to_float(x[i]);
  const float along = rstd * rstd * warp_sum(sum) / static_cast<float>(args.run);
  for (int64_t i = threadIdx.x % kWarp; i < args.run; i += kWarp) {
    const float value = to_float(x[i]), z = to_float(gate[i]), bent = act(args, z), s = sigmoid_of(z);
    const float normed = args.gate_first ? value * bent : value;
    const float d_normed = rstd * (weighted(i) * (args.gate_first ? 1.0f : bent) - normed * along);
    const float slope = args.sigmoid ? s * (1.0f - s) : silu_slope_of(z);
    static_cast<X*>(args.dx)[first + i] = rounded<X>(args.gate_first ? d_normed * bent : d_normed);
    static_cast<X*>(args.d_gate)[first + i] =
        rounded<X>(slope * (args.gate_first ? d_normed * value : weighted(i) * value * rstd));
  }
}

template <class X>
HEDDLE_KERNEL void HEDDLE_BOUNDS(kRecurThreads) gated_norm_sums(GatedNormArgs args) {
  const int64_t gain = static_cast<int64_t>(blockIdx.x) * kRecurThreads + threadIdx.x, part = blockIdx.y;
  if (gain >= args.G) return;
  float sum = 0;
  for (int64_t t = part * kConvRows; t < min(args.T, (part + 1) * kConvRows); ++t) {
    for (int64_t at = t * args.C + gain; at < (t + 1) * args.C; at += args.G)
      sum += to_float(static_cast<const X*>(args.dy)[at]) * to_float(static_cast<const X*>(args.x)[at]) *
             act(args, to_float(static_cast<const X*>(args.gate)[at])) * args.rstd[at / args.run];
  }
  args.parts[part * args.G + gain] = sum;
}

template HEDDLE_KERNEL void conv_forward<float>(ConvArgs args);
template HEDDLE_KERNEL void conv_forward<Bf16>(ConvArgs args);
template HEDDLE_KERNEL void conv_backward<float>(ConvArgs args);
template HEDDLE_KERNEL void conv_backward<Bf16>(ConvArgs args);
template HEDDLE_KERNEL void conv_before<float>(ConvArgs args);
template HEDDLE_KERNEL void conv_before<Bf16>(ConvArgs args);
template HEDDLE_KERNEL void take_ends<float>(PieceArgs args);
template HEDDLE_KERNEL void take_ends<Bf16>(PieceArgs args);
template HEDDLE_KERNEL void take_before<float>(PieceArgs args);
template HEDDLE_KERNEL void take_before<Bf16>(PieceArgs args);
template HEDDLE_KERNEL void conv_sums<float>(ConvArgs args);
template HEDDLE_KERNEL void conv_sums<Bf16>(ConvArgs args);
template HEDDLE_KERNEL void conv_cached<float, kMostTaps>(ConvArgs args);
template HEDDLE_KERNEL void conv_cached<Bf16, kMostTaps>(ConvArgs args);
template HEDDLE_KERNEL void conv_cached<float, kMostKept>(ConvArgs args);
template HEDDLE_KERNEL void conv_cached<Bf16, kMostKept>(ConvArgs args);
template HEDDLE_KERNEL void decay_forward<float>(DecayArgs args);
template HEDDLE_KERNEL void decay_forward<Bf16>(DecayArgs args);
template HEDDLE_KERNEL void decay_backward<float>(DecayArgs args);
template HEDDLE_KERNEL void decay_backward<Bf16>(DecayArgs args);
template HEDDLE_KERNEL void gated_norm_forward<float>(GatedNormArgs args);
template HEDDLE_KERNEL void gated_norm_forward<Bf16>(GatedNormArgs args);
template HEDDLE_KERNEL void gated_norm_backward<float>(GatedNormArgs args);
template HEDDLE_KERNEL void gated_norm_backward<Bf16>(GatedNormArgs args);
template HEDDLE_KERNEL void gated_norm_sums<float>(GatedNormArgs args);
template HEDDLE_KERNEL void gated_norm_sums<Bf16>(GatedNormArgs args);

}  // namespace heddle::kernels::cuda
